// Reads: contents, order, checksums, faults, shutdown.
#include "common/storage/read_engine.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdlib>
#include <map>

#include "common/base/hash.h"
#include "common/base/unique_fd.h"
#include "tests/unit/common/storage/temporary_folder.h"

namespace k3 {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ReadEngineTest : public testing::Test {
 protected:
  ~ReadEngineTest() override { ::unsetenv("K3_READ_FAULTS"); }

  void start(std::size_t threads = 4) {
    engine_ = ReadEngine::create({.threads = threads}).value();
  }

  std::uint32_t add(const std::string& name, std::string_view content) {
    return engine_->add_file(folder_.write(name, content)).value();
  }

  void inject(std::string_view faults) {
    ::setenv("K3_READ_FAULTS", folder_.write("faults", faults).c_str(), 1);
  }

  // Waits until `count` jobs are done; false when done_fd() stays silent for 30 seconds.
  bool wait(std::size_t count) {
    while (done_.size() < count) {
      pollfd event{engine_->done_fd(), POLLIN, 0};
      if (::poll(&event, 1, 30'000) != 1) return false;
      for (ReadDone& done : engine_->take_done()) order_.push_back(done.id), done_[done.id] = done;
    }
    return true;
  }

  ReadDone read(ReadJob job) {
    job.id = 7;
    done_.clear();
    engine_->submit(std::move(job));
    EXPECT_TRUE(wait(1));
    return done_[7];
  }

  static std::span<std::byte> bytes_of(std::string& text) {
    return std::as_writable_bytes(std::span(text));
  }

  test::TemporaryFolder folder_;
  std::unique_ptr<ReadEngine> engine_;
  std::map<std::uint64_t, ReadDone> done_;
  std::vector<std::uint64_t> order_;
};

TEST_F(ReadEngineTest, FillsExtentsOfSeveralFiles) {
  start();
  const std::uint32_t a = add("a", "0123456789");
  const std::uint32_t b = add("b", "abcdefghij");
  std::string into(6, '.');
  const auto out = bytes_of(into);
  const ReadDone done =
      read({.label = "unit 0",
            .extents = {
                {a, 8, out.subspan(0, 2)}, {b, 0, out.subspan(2, 1)}, {a, 0, out.subspan(3, 3)}}});
  EXPECT_TRUE(done.status) << done.status.error().message;
  EXPECT_EQ(done.bytes, 6u);
  EXPECT_EQ(into, "89a012");
}

TEST_F(ReadEngineTest, LargeJobIsSplitAndJoinedExactly) {
  start();
  const std::string content = test::patterned((9u << 20) + 12345);
  const std::uint32_t file = add("large", content);
  std::string into(content.size() - 77, '\0');
  const std::uint64_t sum = checksum(std::as_bytes(std::span(content)).subspan(77));
  const ReadDone done =
      read({.label = "unit 1", .extents = {{file, 77, bytes_of(into)}}, .checksum = sum});
  EXPECT_TRUE(done.status) << done.status.error().message;
  EXPECT_TRUE(into == content.substr(77));
}

TEST_F(ReadEngineTest, ChecksumCoversExtentsInOrder) {
  start();
  const std::uint32_t file = add("f", "0123456789");
  std::string into(4, '.');
  const auto out = bytes_of(into);
  // Two pieces of one buffer in swapped places: the sum is over the order of the extents.
  const ReadDone done = read({.label = "unit 1",
                              .extents = {{file, 0, out.subspan(2, 2)}, {file, 2, out.first(2)}},
                              .checksum = checksum(std::as_bytes(std::span("0123", 4)))});
  EXPECT_TRUE(done.status) << done.status.error().message;
  EXPECT_EQ(into, "2301");
}

TEST_F(ReadEngineTest, WrongChecksumNamesEverything) {
  start();
  const std::uint32_t file = add("shard-1", "0123456789");
  std::string into(4, '.');
  const ReadDone done =
      read({.label = "layer 3 expert 17", .extents = {{file, 5, bytes_of(into)}}, .checksum = 1});
  ASSERT_FALSE(done.status);
  EXPECT_EQ(done.status.error().code, ErrorCode::kWeights);
  EXPECT_THAT(done.status.error().message,
              AllOf(HasSubstr("layer 3 expert 17"), HasSubstr("shard-1"), HasSubstr("4 bytes at 5"),
                    HasSubstr("expected 0000000000000001")));
}

TEST_F(ReadEngineTest, EndOfFileNamesEverything) {
  start();
  const std::uint32_t file = add("shard-1", "0123456789");
  std::string into(8, '.');
  const ReadDone done = read({.label = "unit 2", .extents = {{file, 5, bytes_of(into)}}});
  ASSERT_FALSE(done.status);
  EXPECT_EQ(done.status.error().code, ErrorCode::kWeights);
  EXPECT_THAT(done.status.error().message, AllOf(HasSubstr("unit 2"), HasSubstr("shard-1"),
                                                 HasSubstr("8 bytes at 5"), HasSubstr("5")));
}

TEST_F(ReadEngineTest, JobThatAsksForNothingEndsInAnError) {
  start();
  const std::uint32_t file = add("f", "x");
  std::string into(1, '.');
  EXPECT_FALSE(read({.label = "unit 1"}).status);
  EXPECT_FALSE(read({.label = "unit 1", .extents = {{file, 0, {}}}}).status);
  const ReadDone unknown = read({.label = "unit 1", .extents = {{file + 1, 0, bytes_of(into)}}});
  ASSERT_FALSE(unknown.status);
  EXPECT_THAT(unknown.status.error().message, HasSubstr("file number 1 of 1"));
}

TEST_F(ReadEngineTest, MissingFileIsNamed) {
  start();
  const Result<std::uint32_t> file = engine_->add_file(folder_.path() / "absent");
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("absent"));
}

TEST_F(ReadEngineTest, UrgentJobsOvertakeWaitingOnes) {
  // The only reader stands still at the end of its first job: opening a FIFO, here the fault file,
  // waits for a writer. The writer comes when all jobs are in the queues.
  const std::filesystem::path gate = folder_.path() / "gate";
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  ::setenv("K3_READ_FAULTS", gate.c_str(), 1);
  start(1);
  const std::uint32_t file = add("f", "0123456789");
  std::string into(5, '.');
  const auto out = bytes_of(into);
  engine_->submit({.id = 0, .label = "first", .extents = {{file, 0, out.subspan(0, 1)}}});
  for (std::uint64_t id : {1, 2}) {
    engine_->submit({.id = id, .label = "later", .extents = {{file, id, out.subspan(id, 1)}}});
  }
  for (std::uint64_t id : {3, 4}) {
    engine_->submit(
        {.id = id, .label = "now", .extents = {{file, id, out.subspan(id, 1)}}, .urgent = true});
  }
  const UniqueFd writer(::open(gate.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(wait(5));
  const auto place = [&](std::uint64_t id) {
    return std::find(order_.begin(), order_.end(), id) - order_.begin();
  };
  EXPECT_LT(place(3), place(1));
  EXPECT_LT(place(4), place(1));
  EXPECT_LT(place(3), place(4));
  EXPECT_LT(place(1), place(2));
  EXPECT_EQ(into, "01234");
}

TEST_F(ReadEngineTest, PassingFaultIsHiddenByTheRetry) {
  // The buffer is the file itself, so that each attempt moves the file's content on: the first one
  // leaves "BBBBCCCC" in it, which is not what the checksum wants, the second "CCCCCCCC".
  start(1);
  const std::uint32_t file = add("f", "AAAABBBBCCCC");
  const UniqueFd fd(::open((folder_.path() / "f").c_str(), O_RDWR | O_CLOEXEC));
  void* mapping = ::mmap(nullptr, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(mapping, MAP_FAILED);
  const std::span<std::byte> into(static_cast<std::byte*>(mapping), 8);
  const ReadDone done = read({.label = "unit 1",
                              .extents = {{file, 4, into.first(4)}, {file, 8, into.last(4)}},
                              .checksum = checksum(std::as_bytes(std::span("CCCCCCCC", 8)))});
  EXPECT_TRUE(done.status) << done.status.error().message;
  ::munmap(mapping, 8);
}

TEST_F(ReadEngineTest, LastingFaultsAreReportedAndOtherJobsGoOn) {
  inject("error expert 1\ncorrupt expert 2");
  start();
  const std::string content = test::patterned(1 << 16);
  const std::uint64_t sum = checksum(std::as_bytes(std::span(content)));
  const std::uint32_t file = add("f", content);
  std::vector<std::string> into(4, std::string(content.size(), '\0'));
  for (std::uint64_t id = 0; id < 4; ++id) {
    engine_->submit({.id = id,
                     .label = "layer 0 expert " + std::to_string(id),
                     .extents = {{file, 0, bytes_of(into[id])}},
                     .checksum = sum});
  }
  ASSERT_TRUE(wait(4));
  EXPECT_TRUE(done_[0].status);
  ASSERT_FALSE(done_[1].status);
  EXPECT_THAT(done_[1].status.error().message,
              AllOf(HasSubstr("layer 0 expert 1"), HasSubstr("injected"), HasSubstr("2 attempts")));
  ASSERT_FALSE(done_[2].status);
  EXPECT_THAT(done_[2].status.error().message,
              AllOf(HasSubstr("layer 0 expert 2"), HasSubstr("checksum")));
  EXPECT_TRUE(done_[3].status);
  EXPECT_TRUE(into[3] == content);
}

TEST_F(ReadEngineTest, DoneDescriptorIsQuietOnceAllIsTaken) {
  start();
  const std::uint32_t file = add("f", "x");
  std::string into(1, '.');
  EXPECT_TRUE(read({.label = "unit 1", .extents = {{file, 0, bytes_of(into)}}}).status);
  pollfd event{engine_->done_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&event, 1, 0), 0);
  EXPECT_TRUE(engine_->take_done().empty());
}

TEST_F(ReadEngineTest, ManyJobsFromManyFilesAllArrive) {
  start(8);
  constexpr std::uint64_t kJobs = 500;
  const std::string content = test::patterned(kJobs * 100);
  std::string into(content.size(), '\0');
  for (std::uint64_t id = 0; id < kJobs; ++id) {
    const std::uint32_t file = id % 100 == 0 ? add("f" + std::to_string(id), content)
                                             : static_cast<std::uint32_t>(id / 100);
    engine_->submit({.id = id,
                     .label = "job",
                     .extents = {{file, id * 100, bytes_of(into).subspan(id * 100, 100)}},
                     .urgent = id % 3 == 0});
  }
  ASSERT_TRUE(wait(kJobs));
  for (const auto& [id, done] : done_) EXPECT_TRUE(done.status) << id;
  EXPECT_TRUE(into == content);
}

TEST_F(ReadEngineTest, DestructionWithReadsUnderWayJoinsFirst) {
  const std::string content = test::patterned(4u << 20);
  std::string into(content.size(), '\0');
  for (int round = 0; round < 5; ++round) {
    start(8);
    const std::uint32_t file = add("large", content);
    for (std::uint64_t id = 0; id < 16; ++id) {
      engine_->submit({.id = id,
                       .label = "unit",
                       .extents = {{file, id << 18, bytes_of(into).subspan(id << 18, 1u << 18)}}});
    }
    engine_.reset();
    std::fill(into.begin(), into.end(), '\0');  // a reader still alive would write over this
    EXPECT_EQ(std::count(into.begin(), into.end(), '\0'), static_cast<long>(into.size()));
  }
}

}  // namespace
}  // namespace k3
