#include "tools/k3/pipeline_memory.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "common/observe/memory.h"

namespace k3::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPeriod{100};
// The kernel walks every page of a process for one figure. With arenas of many gigabytes that takes
// long enough to slow the process down, so at most this share of the time is spent sampling.
constexpr int kLargestShare = 20;  // one in twenty

}  // namespace

PeakMemory::PeakMemory() : thread_([this] { run(); }) {}

PeakMemory::~PeakMemory() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void PeakMemory::watch(const std::string& stage, std::uint32_t pid) {
  const std::lock_guard lock(mutex_);
  pids_[stage] = pid;
}

std::uint64_t PeakMemory::peak_bytes() {
  sample();
  const std::lock_guard lock(mutex_);
  return peak_;
}

void PeakMemory::sample() {
  std::vector<std::uint32_t> pids = {static_cast<std::uint32_t>(getpid())};
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [stage, pid] : pids_) pids.push_back(pid);
  }
  std::uint64_t sum = 0;
  for (const std::uint32_t pid : pids) sum += proportional_set_bytes(pid).value_or(0);
  const std::lock_guard lock(mutex_);
  peak_ = std::max(peak_, sum);
}

void PeakMemory::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const Clock::time_point begin = Clock::now();
    sample();
    const Clock::duration took = Clock::now() - begin;
    lock.lock();
    wake_.wait_for(lock, std::max<Clock::duration>(kPeriod, took * kLargestShare),
                   [this] { return stopping_; });
  }
}

}  // namespace k3::cli
