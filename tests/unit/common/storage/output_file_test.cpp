// Output files: nothing half-written is ever seen, a full disk is found first.
#include "common/storage/output_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/unit/common/storage/temporary_folder.h"

namespace k3 {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(OutputFile, AppearsOnlyWhenCommitted) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "out";
  Result<OutputFile> file = OutputFile::create(path, 8);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_TRUE(file->write(2, bytes_of("abc")));
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(test::content_of(path), std::string("\0\0abc\0\0\0", 8));
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(OutputFile, AsNeededLeavesZerosOut) {
  constexpr std::size_t kBytes = 8 << 20;
  std::string content(kBytes, '\0');
  content[3 << 20] = 'a';
  content[kBytes - 1] = 'b';
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "out";
  Result<OutputFile> file = OutputFile::create(path, 100 + kBytes, OutputFile::Space::kAsNeeded);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_TRUE(file->write(100, bytes_of(content)));
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(test::content_of(path), std::string(100, '\0') + content);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_LT(static_cast<std::size_t>(info.st_blocks) * 512, kBytes / 8);
}

TEST(OutputFile, AbandonedLeavesTheOldFile) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("out", "old");
  {
    Result<OutputFile> file = OutputFile::create(path, 100);
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write(0, bytes_of("new")));
  }
  EXPECT_EQ(test::content_of(path), "old");
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(OutputFile, MoreThanTheDiskHoldsIsRefusedWithBothNumbers) {
  const test::TemporaryFolder folder;
  const std::uint64_t free_bytes = std::filesystem::space(folder.path()).available;
  const std::uint64_t wanted = free_bytes + (std::uint64_t{64} << 30);
  const Result<OutputFile> file = OutputFile::create(folder.path() / "out", wanted);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::kOutput);
  EXPECT_NE(file.error().message.find(std::to_string(wanted)), std::string::npos)
      << file.error().message;
  EXPECT_EQ(files_in(folder.path()), 0u);
}

TEST(OutputFile, SecondWriterIsRefused) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "out";
  Result<OutputFile> first = OutputFile::create(path, 3);
  ASSERT_TRUE(first);
  ASSERT_TRUE(first->write(0, bytes_of("abc")));
  EXPECT_FALSE(OutputFile::create(path, 3));
  ASSERT_TRUE(first->commit());
  EXPECT_EQ(test::content_of(path), "abc");
}

TEST(OutputFile, PartialFileOfAKilledWriterIsTakenOver) {
  const test::TemporaryFolder folder;
  folder.write("out.partial", "remains of an earlier run");
  Result<OutputFile> file = OutputFile::create(folder.path() / "out", 2);
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(test::content_of(folder.path() / "out"), std::string(2, '\0'));
}

TEST(OutputFile, MissingFolderIsNamed) {
  const Result<OutputFile> file = OutputFile::create("/nonexistent folder/out", 1);
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message.find("/nonexistent folder/out"), std::string::npos);
}

}  // namespace
}  // namespace k3
