#include "tools/k3/pipeline_stats.h"

namespace k3::cli {

void StatsLedger::record(std::uint64_t incarnation, const ipc::Stats& stats) {
  auto& counts = processes_[incarnation];
  for (const ipc::Counter& counter : stats.counters) counts[counter.name].now = counter.value;
}

void StatsLedger::start_here() {
  for (auto& [incarnation, counts] : processes_) {
    for (auto& [name, count] : counts) count.start = count.now;
  }
}

std::uint64_t StatsLedger::total(std::string_view counter) const {
  std::uint64_t sum = 0;
  for (const auto& [incarnation, counts] : processes_) {
    const auto found = counts.find(counter);
    // A gauge may have fallen below its value at the start.
    if (found != counts.end() && found->second.now > found->second.start) {
      sum += found->second.now - found->second.start;
    }
  }
  return sum;
}

}  // namespace k3::cli
