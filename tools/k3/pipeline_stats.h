// A service's counters, added up over its restarts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "common/ipc/messages.h"

namespace k3::cli {

// Services count from their own start; a killed one counts up to its last report. One thread.
class StatsLedger {
 public:
  // The latest counters of the process `incarnation`.
  void record(std::uint64_t incarnation, const ipc::Stats& stats);

  // From now on total() counts only what is added after this call.
  void start_here();

  // Sum of `counter` over all processes; 0 when none has reported it.
  std::uint64_t total(std::string_view counter) const;

 private:
  struct Count {
    std::uint64_t start = 0;
    std::uint64_t now = 0;
  };
  std::map<std::uint64_t, std::map<std::string, Count, std::less<>>> processes_;
};

}  // namespace k3::cli
