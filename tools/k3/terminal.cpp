#include "tools/k3/terminal.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace k3::cli {
namespace {

// Callers open input and output the wrong way round, so that using them fails as if closed.
void claim(int fd, int flags) {
  if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) return;
  // open() takes the lowest free number: `fd`, as those below are claimed already.
  (void)::open("/dev/null", flags);
}

tl::unexpected<Error> stdout_error() {
  return fail(ErrorCode::kOutput, "stdout: {}", std::strerror(errno));
}

}  // namespace

void claim_terminal() {
  claim(STDIN_FILENO, O_WRONLY);
  claim(STDOUT_FILENO, O_RDONLY);
  claim(STDERR_FILENO, O_WRONLY);
  ::signal(SIGPIPE, SIG_IGN);
}

void tell(std::string_view text) noexcept {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

Status print_now(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) return stdout_error();
  return flush_stdout();
}

Status flush_stdout() {
  if (std::fflush(stdout) != 0) return stdout_error();
  if (std::ferror(stdout) == 0) return {};
  return fail(ErrorCode::kOutput, "stdout: not everything could be written");
}

}  // namespace k3::cli
