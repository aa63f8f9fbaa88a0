// The peak memory of a whole pipeline, sampled beside the run.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace k3::cli {

// Samples the sum of the proportional set sizes of this process and of the watched ones every
// 100 ms on a thread of its own. All members may be called from any thread.
class PeakMemory {
 public:
  PeakMemory();
  ~PeakMemory();

  // The process that runs `stage` from now on; replaces an earlier one.
  void watch(const std::string& stage, std::uint32_t pid);

  // Takes one more sample and returns the largest sum seen, in bytes.
  std::uint64_t peak_bytes();

 private:
  void sample();
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, std::uint32_t> pids_;
  std::uint64_t peak_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // last: starts when all else is ready
};

}  // namespace k3::cli
