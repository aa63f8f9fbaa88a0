#include "tools/k3/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/support/temp_dir.h"

namespace k3::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string reason(const Status& status) {
  if (status) return "";
  EXPECT_EQ(status.error().code, ErrorCode::kOutput);
  return status.error().message;
}

TEST(CheckOutput, AcceptsWhatCanBeWrittenAndTouchesNothing) {
  const test::TempDir dir;
  EXPECT_TRUE(check_output(dir.path() / "new", "--json"));
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "new"));
  std::ofstream(dir.path() / "old") << "old";
  EXPECT_TRUE(check_output(dir.path() / "old", "--json"));
  EXPECT_EQ(std::filesystem::file_size(dir.path() / "old"), 3u);
  EXPECT_TRUE(check_output("/dev/null", "--json"));
  EXPECT_TRUE(check_output("name-in-this-folder", "--json"));
}

TEST(CheckOutput, NamesFlagPathAndReason) {
  const test::TempDir dir;
  EXPECT_THAT(reason(check_output(dir.path(), "--json")),
              AllOf(HasSubstr("--json"), HasSubstr(dir.path()), HasSubstr("directory")));
  const auto absent = dir.path() / "absent" / "r.json";
  EXPECT_THAT(reason(check_output(absent, "--json")),
              AllOf(HasSubstr(absent), HasSubstr("No such file")));
  std::ofstream(dir.path() / "file") << "";
  EXPECT_THAT(reason(check_output(dir.path() / "file" / "r.json", "--json")),
              HasSubstr("Not a directory"));
  std::filesystem::create_symlink("absent/r.json", dir.path() / "link");
  EXPECT_THAT(reason(check_output(dir.path() / "link", "--json")), HasSubstr("No such file"));
}

TEST(WriteOutput, APipeNobodyReadsIsAnErrorNotAWait) {
  const test::TempDir dir;
  const auto pipe = dir.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(check_output(pipe, "--json"));  // its reader may come later
  EXPECT_THAT(reason(write_output(pipe, "x")), AllOf(HasSubstr(pipe), HasSubstr("nobody reads")));
}

TEST(WriteOutput, WritesToAPipeThatIsRead) {
  const test::TempDir dir;
  const auto pipe = dir.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const UniqueFd reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
  ASSERT_TRUE(write_output(pipe, "hello"));
  std::array<char, 8> got{};
  ASSERT_EQ(read(reader.get(), got.data(), got.size()), 5);
  EXPECT_STREQ(got.data(), "hello");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(WriteOutput, WhatGoesToStdoutAlreadyIsAddedToNotReplaced) {
  ::testing::internal::CaptureStdout();
  ASSERT_EQ(write(STDOUT_FILENO, "text\n", 5), 5);
  EXPECT_TRUE(check_output("/dev/stdout", "--json"));
  EXPECT_TRUE(write_output("/dev/stdout", "report\n"));
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "text\nreport\n");
  EXPECT_TRUE(std::filesystem::is_symlink("/dev/stdout"));
}

}  // namespace
}  // namespace k3::cli
