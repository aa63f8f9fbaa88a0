#include "common/base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/unit/support/temp_dir.h"

namespace k3 {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(OpenForReading, OpensARegularFileThatBlocksAsUsual) {
  const test::TempDir dir;
  std::ofstream(dir.path() / "file") << "abc";
  const Result<UniqueFd> fd = open_for_reading(dir.path() / "file");
  ASSERT_TRUE(fd) << fd.error().message;
  EXPECT_EQ(::fcntl(fd->get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(OpenForReading, FollowsALinkToAFile) {
  const test::TempDir dir;
  std::ofstream(dir.path() / "file") << "abc";
  std::filesystem::create_symlink("file", dir.path() / "link");
  EXPECT_EQ(read_text_file(dir.path() / "link", 10).value(), "abc");
}

TEST(OpenForReading, APipeWithoutAWriterIsRefusedAtOnce) {
  const test::TempDir dir;
  const std::filesystem::path pipe = dir.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Result<UniqueFd> fd = open_for_reading(pipe);
  ASSERT_FALSE(fd);
  EXPECT_THAT(fd.error().message, AllOf(HasSubstr(pipe.string()), HasSubstr("a pipe")));
}

TEST(OpenForReading, AFolderIsRefused) {
  const test::TempDir dir;
  const Result<UniqueFd> fd = open_for_reading(dir.path());
  ASSERT_FALSE(fd);
  EXPECT_THAT(fd.error().message, AllOf(HasSubstr(dir.path().string()), HasSubstr("a folder")));
}

TEST(OpenForReading, ErrorsHaveTheCodeAskedFor) {
  const test::TempDir dir;
  for (const std::filesystem::path& path : {dir.path(), dir.path() / "absent"}) {
    EXPECT_EQ(open_for_reading(path).error().code, ErrorCode::kFailed) << path;
    EXPECT_EQ(open_for_reading(path, ErrorCode::kWeights).error().code, ErrorCode::kWeights)
        << path;
  }
}

TEST(OpenForReading, AShortageOfDescriptorsIsNoUnsoundWeight) {
  const test::TempDir dir;
  std::ofstream(dir.path() / "file") << "abc";
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Result<UniqueFd> fd = open_for_reading(dir.path() / "file", ErrorCode::kWeights);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_FALSE(fd);
  EXPECT_EQ(fd.error().code, ErrorCode::kFailed);
  EXPECT_THAT(fd.error().message, HasSubstr("Too many open files"));
}

}  // namespace
}  // namespace k3
