// Pages of real files: brought in, counted, and missed when the file is shorter than its mapping.
#include "services/experts_pagecache/page_loader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <string>

#include "common/arena/arena.h"
#include "tests/unit/support/temp_dir.h"

namespace k3::pagecache {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kPages = 64;
constexpr std::size_t kFileBytes = kPages * kPageBytes;

class PageLoaderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(path_) << std::string(kFileBytes, 'w') << std::flush;
    auto mapped = MappedRegion::map(UniqueFd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)),
                                    kFileBytes, RegionKind::kFile);
    ASSERT_TRUE(mapped) << mapped.error().message;
    mapping_ = std::move(*mapped);
    auto loader = PageLoader::create(3);
    ASSERT_TRUE(loader) << loader.error().message;
    loader_ = std::move(*loader);
  }

  std::span<const std::byte> bytes(std::size_t first, std::size_t count) const {
    return mapping_->data().subspan(first, count);
  }

  // Waits until `count` jobs are done.
  std::vector<LoadDone> wait(std::size_t count) {
    std::vector<LoadDone> all;
    while (all.size() < count) {
      pollfd item{loader_->done_fd(), POLLIN, 0};
      EXPECT_EQ(::poll(&item, 1, 120'000), 1) << "no job ended";
      for (const LoadDone& done : loader_->take_done()) all.push_back(done);
    }
    return all;
  }

  // Out of the page cache, if the file system lets go of its pages; whether it did.
  bool forget_pages() {
    const UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
    ::fsync(fd.get());
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    std::vector<unsigned char> present(kPages);
    ::mincore(const_cast<std::byte*>(mapping_->data().data()), kFileBytes, present.data());
    return std::ranges::none_of(present, [](auto page) { return (page & 1) != 0; });
  }

  test::TempDir folder_;
  const std::filesystem::path path_ = folder_.path() / "weights";
  std::optional<MappedRegion> mapping_;
  std::unique_ptr<PageLoader> loader_;
};

TEST_F(PageLoaderTest, EveryJobEndsOnceUnderItsNumber) {
  std::set<std::uint64_t> open;
  for (std::uint64_t id = 0; id < 200; ++id) {
    loader_->submit({id, {bytes(id * 1000, 5000)}, id % 3 == 0});
    open.insert(id);
  }
  for (const LoadDone& done : wait(200)) {
    EXPECT_EQ(open.erase(done.id), 1u);
    EXPECT_FALSE(done.failed_run);
  }
  EXPECT_TRUE(loader_->take_done().empty());
}

TEST_F(PageLoaderTest, CountsThePagesThatWereAbsent) {
  if (!forget_pages()) GTEST_SKIP() << "the file system keeps its pages in memory";
  // Two bytes on two pages, and six whole pages.
  loader_->submit({1, {bytes(kPageBytes - 1, 2), bytes(30 * kPageBytes, 6 * kPageBytes)}, true});
  EXPECT_EQ(wait(1)[0].bytes_absent, 8 * kPageBytes);
  loader_->submit({2, {bytes(kPageBytes - 1, 2), bytes(30 * kPageBytes, 6 * kPageBytes)}, true});
  EXPECT_EQ(wait(1)[0].bytes_absent, 0u);
}

TEST_F(PageLoaderTest, APageThatIsNotThereFailsItsRunAlone) {
  ASSERT_EQ(::truncate(path_.c_str(), 10 * kPageBytes), 0);
  loader_->submit({1, {bytes(0, 100), bytes(10 * kPageBytes, 1), bytes(20 * kPageBytes, 1)}, true});
  EXPECT_EQ(wait(1)[0].failed_run, 1u);
  loader_->submit({2, {bytes(9 * kPageBytes, kPageBytes)}, true});
  EXPECT_FALSE(wait(1)[0].failed_run);
}

}  // namespace
}  // namespace k3::pagecache
