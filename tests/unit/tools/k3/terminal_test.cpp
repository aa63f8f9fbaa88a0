#include "tools/k3/terminal.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cstdio>

#include "common/base/unique_fd.h"

namespace k3::cli {
namespace {

using ::testing::HasSubstr;

// `fd` is /dev/full while this lives.
class Full {
 public:
  explicit Full(int fd) : fd_(fd), before_(dup(fd)) {
    const UniqueFd full(open("/dev/full", O_WRONLY));
    dup2(full.get(), fd_);
  }
  ~Full() { dup2(before_.get(), fd_); }

 private:
  int fd_;
  UniqueFd before_;
};

TEST(Tell, ToAFullStderrDoesNothing) {
  const Full full(STDERR_FILENO);
  EXPECT_NO_THROW(tell("nobody reads this\n"));
}

TEST(PrintNow, NamesStdoutAndTheReason) {
  Status status;
  {
    const Full full(STDOUT_FILENO);
    status = print_now("x");
  }
  __fpurge(stdout);
  clearerr(stdout);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kOutput);
  EXPECT_THAT(status.error().message, HasSubstr("stdout: No space left"));
}

}  // namespace
}  // namespace k3::cli
