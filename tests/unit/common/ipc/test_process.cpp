#include "tests/unit/common/ipc/test_process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace k3::ipc::test {

TestProcess::TestProcess(const std::string& mode, const std::filesystem::path& dir) {
  std::string program = K3_TEST_PEER;
  std::string mode_argument = mode;
  std::string dir_argument = dir.string();
  char* arguments[] = {program.data(), mode_argument.data(), dir_argument.data(), nullptr};
  if (::posix_spawn(&pid_, program.c_str(), nullptr, nullptr, arguments, environ) != 0) {
    std::abort();
  }
}

TestProcess::~TestProcess() { kill(); }

void TestProcess::signal(int number) {
  if (pid_ > 0) ::kill(pid_, number);
}

void TestProcess::kill() {
  if (pid_ <= 0) return;
  signal(SIGKILL);
  wait();
}

int TestProcess::wait() {
  int status = 0;
  const pid_t pid = std::exchange(pid_, -1);
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace k3::ipc::test
