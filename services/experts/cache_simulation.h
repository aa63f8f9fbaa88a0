// What a cache of a given size would have hit of a recorded trace: bookkeeping alone, no weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "services/experts/expert_trace.h"

namespace k3::experts {

// Of the experts of every record but those of prefill, which fills the cache and counts nothing.
struct SimulatedHits {
  std::uint64_t experts = 0;
  std::uint64_t hits = 0;

  double percent() const;  // 0 of no experts
};

// The policy `name` (make_policy) in a cache of `slots` experts, at least 1, empty at first. As in
// ExpertCache a record's experts are not evicted for one another; a record of more experts than
// slots comes in rounds. kUsage for an unknown name and for
// a trace of more layers and experts than any model has. Any thread.
Result<SimulatedHits> simulate(std::span<const TraceRecord> trace, std::size_t slots,
                               std::string_view name);

// What no policy exceeds: evicts what is needed again last of all (Belady 1966), knowing the whole
// trace, expert by expert. Of a trace that simulate() takes.
SimulatedHits simulate_belady(std::span<const TraceRecord> trace, std::size_t slots);

// The incremental trace inside one of an engine that computed the whole prefix again for every
// token: the last sweep over the layers, of which the positions of the first sweep are the prefill
// and each further one a decoded token. kUsage when the last sweep does not have equally many
// records of every layer, or fewer than the first.
Result<std::vector<TraceRecord>> last_sweep(std::span<const TraceRecord> trace);

}  // namespace k3::experts
