// A child process of a test: killed at the latest when the test ends.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

namespace k3::ipc::test {

class TestProcess {
 public:
  // Starts ipc_test_peer (test_peer.cpp).
  TestProcess(const std::string& mode, const std::filesystem::path& dir);
  ~TestProcess();
  TestProcess(const TestProcess&) = delete;
  TestProcess& operator=(const TestProcess&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number);
  void kill();  // SIGKILL, then waits until it is gone
  // Waits for its end; the exit code, or -1 when a signal ended it.
  int wait();

 private:
  pid_t pid_ = -1;
};

}  // namespace k3::ipc::test
