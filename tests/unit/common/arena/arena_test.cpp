// The owner's and the consumer's side of a shared arena, and what its seals forbid.
#include "common/arena/arena.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <utility>

namespace k3 {
namespace {

constexpr std::size_t kBytes = std::size_t{64} << 10;

UniqueFd duplicate(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

TEST(Arena, ConsumerSeesWhatTheOwnerWritesLater) {
  Result<Arena> arena = Arena::create("test", kBytes);
  ASSERT_TRUE(arena) << arena.error().message;
  ASSERT_EQ(arena->data().size(), kBytes);
  Result<MappedRegion> region = MappedRegion::map(duplicate(arena->fd()), kBytes);
  ASSERT_TRUE(region) << region.error().message;
  ASSERT_EQ(region->data().size(), kBytes);
  std::memcpy(arena->data().data() + kBytes - 5, "hello", 5);
  EXPECT_EQ(std::memcmp(region->data().data() + kBytes - 5, "hello", 5), 0);
}

TEST(Arena, StartsZeroed) {
  Result<Arena> arena = Arena::create("test", kBytes);
  ASSERT_TRUE(arena);
  EXPECT_THAT(arena->data(), testing::Each(std::byte{0}));
}

TEST(Arena, ConsumerCannotMapItWritable) {
  Result<Arena> arena = Arena::create("test", kBytes);
  ASSERT_TRUE(arena);
  void* data = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd(), 0);
  EXPECT_EQ(data, MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
}

TEST(Arena, ConsumerCannotMakeItsMappingWritable) {
  Result<Arena> arena = Arena::create("test", kBytes);
  ASSERT_TRUE(arena);
  Result<MappedRegion> region = MappedRegion::map(duplicate(arena->fd()), kBytes);
  ASSERT_TRUE(region);
  void* data = const_cast<std::byte*>(region->data().data());
  EXPECT_NE(::mprotect(data, kBytes, PROT_READ | PROT_WRITE), 0);
}

TEST(Arena, NobodyCanWriteThroughTheDescriptorOrResizeIt) {
  Result<Arena> arena = Arena::create("test", kBytes);
  ASSERT_TRUE(arena);
  EXPECT_EQ(::pwrite(arena->fd(), "x", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(arena->fd(), kBytes / 2), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(arena->fd(), kBytes * 2), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fcntl(arena->fd(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(Arena, IsNotInheritedByAnExecutedChild) {
  Result<Arena> arena = Arena::create("test", kBytes);
  ASSERT_TRUE(arena);
  EXPECT_NE(::fcntl(arena->fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Arena, GenerationsAreNonZeroAndDiffer) {
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 100; ++i) {
    Result<Arena> arena = Arena::create("test", 1);
    ASSERT_TRUE(arena);
    EXPECT_NE(arena->generation(), 0u);
    seen.insert(arena->generation());
  }
  EXPECT_EQ(seen.size(), 100u);
}

TEST(Arena, MovesWithoutClosing) {
  Result<Arena> first = Arena::create("first", kBytes);
  Result<Arena> second = Arena::create("second", kBytes);
  ASSERT_TRUE(first && second);
  const int fd = second->fd();
  const std::uint64_t generation = second->generation();
  second->data()[7] = std::byte{42};
  *first = std::move(*second);
  EXPECT_EQ(first->fd(), fd);
  EXPECT_EQ(first->generation(), generation);
  EXPECT_EQ(first->data()[7], std::byte{42});
  EXPECT_GE(::fcntl(fd, F_GETFD), 0);
}

TEST(Arena, RefusesImpossibleSizes) {
  Result<Arena> empty = Arena::create("empty", 0);
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, ErrorCode::kFailed);
  Result<Arena> huge = Arena::create("huge", ~std::size_t{0});
  ASSERT_FALSE(huge);
  EXPECT_THAT(huge.error().message, testing::HasSubstr("18446744073709551615"));
}

TEST(MappedRegion, RefusesADescriptorSmallerThanAnnounced) {
  Result<Arena> arena = Arena::create("test", kBytes);
  ASSERT_TRUE(arena);
  Result<MappedRegion> region = MappedRegion::map(duplicate(arena->fd()), kBytes + 1);
  ASSERT_FALSE(region);
  EXPECT_EQ(region.error().code, ErrorCode::kFailed);
  EXPECT_THAT(region.error().message, testing::HasSubstr("65537"));
  EXPECT_THAT(region.error().message, testing::HasSubstr("65536"));
}

TEST(MappedRegion, RefusesMemoryThatCouldShrinkUnderItsReader) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(fd.get(), kBytes), 0);
  const Result<MappedRegion> open = MappedRegion::map(duplicate(fd.get()), kBytes);
  ASSERT_FALSE(open);
  EXPECT_EQ(open.error().code, ErrorCode::kFailed);
  EXPECT_THAT(open.error().message, testing::HasSubstr("shrinking"));
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  EXPECT_FALSE(MappedRegion::map(duplicate(fd.get()), kBytes));
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_TRUE(MappedRegion::map(std::move(fd), kBytes));
}

TEST(MappedRegion, MemoryThatCouldShrinkIsRefusedWhateverItsSizeIsNow) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const Result<MappedRegion> region = MappedRegion::map(std::move(fd), kBytes);
  ASSERT_FALSE(region);
  EXPECT_THAT(region.error().message, testing::HasSubstr("shrinking"));
}

TEST(MappedRegion, RefusesADescriptorThatIsNoMemory) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd writer(ends[1]);
  EXPECT_FALSE(MappedRegion::map(UniqueFd(ends[0]), 1));
  EXPECT_FALSE(MappedRegion::map(UniqueFd(), 1));
}

// A file of kBytes on disk, without a name, open as `flags` say.
UniqueFd file_open_for(int flags) {
  std::string name = "/tmp/k3-arena-XXXXXX";
  const UniqueFd writer(::mkstemp(name.data()));
  EXPECT_EQ(::ftruncate(writer.get(), kBytes), 0);
  EXPECT_EQ(::pwrite(writer.get(), "weight", 6, 100), 6);
  UniqueFd fd(::open(name.c_str(), flags | O_CLOEXEC));
  ::unlink(name.c_str());
  return fd;
}

TEST(MappedRegion, TakesAFileThatIsDeclaredAsOne) {
  const Result<MappedRegion> region =
      MappedRegion::map(file_open_for(O_RDONLY), kBytes, RegionKind::kFile);
  ASSERT_TRUE(region) << region.error().message;
  EXPECT_EQ(std::memcmp(region->data().data() + 100, "weight", 6), 0);
}

TEST(MappedRegion, RefusesAFileThatIsNotDeclaredWritableOrTooShort) {
  EXPECT_FALSE(MappedRegion::map(file_open_for(O_RDONLY), kBytes));
  const Result<MappedRegion> writable =
      MappedRegion::map(file_open_for(O_RDWR), kBytes, RegionKind::kFile);
  ASSERT_FALSE(writable);
  EXPECT_THAT(writable.error().message, testing::HasSubstr("read-only"));
  const Result<MappedRegion> shorter =
      MappedRegion::map(file_open_for(O_RDONLY), kBytes + 1, RegionKind::kFile);
  ASSERT_FALSE(shorter);
  EXPECT_THAT(shorter.error().message, testing::HasSubstr("65537"));
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd writer(ends[1]);
  EXPECT_FALSE(MappedRegion::map(UniqueFd(ends[0]), 1, RegionKind::kFile));
}

TEST(MappedRegion, OutlivesTheArena) {
  Result<Arena> arena = Arena::create("test", kBytes);
  ASSERT_TRUE(arena);
  arena->data()[0] = std::byte{9};
  Result<MappedRegion> region = MappedRegion::map(duplicate(arena->fd()), kBytes);
  ASSERT_TRUE(region);
  { const Arena gone = std::move(*arena); }
  EXPECT_EQ(region->data()[0], std::byte{9});
}

}  // namespace
}  // namespace k3
