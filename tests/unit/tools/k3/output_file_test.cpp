#include "tools/k3/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
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
  EXPECT_TRUE(check_output(dir.path() / "new", "--json", Output::kReplaced));
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "new"));
  std::ofstream(dir.path() / "old") << "old";
  EXPECT_TRUE(check_output(dir.path() / "old", "--json", Output::kReplaced));
  EXPECT_EQ(std::filesystem::file_size(dir.path() / "old"), 3u);
  EXPECT_TRUE(check_output("/dev/null", "--json", Output::kReplaced));
  EXPECT_TRUE(check_output("name-in-this-folder", "--json", Output::kReplaced));
}

TEST(CheckOutput, NamesFlagPathAndReason) {
  const test::TempDir dir;
  EXPECT_THAT(reason(check_output(dir.path(), "--json", Output::kReplaced)),
              AllOf(HasSubstr("--json"), HasSubstr(dir.path()), HasSubstr("directory")));
  const auto absent = dir.path() / "absent" / "r.json";
  EXPECT_THAT(reason(check_output(absent, "--json", Output::kReplaced)),
              AllOf(HasSubstr(absent), HasSubstr("No such file")));
  std::ofstream(dir.path() / "file") << "";
  EXPECT_THAT(reason(check_output(dir.path() / "file" / "r.json", "--json", Output::kReplaced)),
              HasSubstr("Not a directory"));
  std::filesystem::create_symlink("absent/r.json", dir.path() / "link");
  EXPECT_THAT(reason(check_output(dir.path() / "link", "--json", Output::kReplaced)),
              HasSubstr("No such file"));
}

// The test itself may run as root, to whom every folder is writable.
int exit_code_of_check_as_a_user(const std::filesystem::path& path, Output how) {
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
    _exit(check_output(path, "--flag", how) ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(CheckOutput, AWritableFileInAReadOnlyFolderCanOnlyBeWrittenInPlace) {
  const test::TempDir dir;
  const auto file = dir.path() / "old";
  std::ofstream(file) << "old";
  std::filesystem::permissions(file, std::filesystem::perms{0666});
  std::filesystem::permissions(dir.path(), std::filesystem::perms{0555});
  EXPECT_EQ(exit_code_of_check_as_a_user(file, Output::kInPlace), 0);
  EXPECT_EQ(exit_code_of_check_as_a_user(file, Output::kReplaced), 1);
  EXPECT_EQ(exit_code_of_check_as_a_user(dir.path() / "new", Output::kInPlace), 1);
  std::filesystem::permissions(dir.path(), std::filesystem::perms::owner_all);
}

TEST(WriteOutput, APipeNobodyReadsIsAnErrorNotAWait) {
  const test::TempDir dir;
  const auto pipe = dir.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(check_output(pipe, "--json", Output::kReplaced));  // its reader may come later
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
  EXPECT_TRUE(check_output("/dev/stdout", "--json", Output::kReplaced));
  EXPECT_TRUE(write_output("/dev/stdout", "report\n"));
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "text\nreport\n");
  EXPECT_TRUE(std::filesystem::is_symlink("/dev/stdout"));
}

}  // namespace
}  // namespace k3::cli
