// How a memory budget becomes slots, and which units stay resident for good.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.h"

namespace k3::trunk {

struct TrunkPlan {
  std::uint64_t slot_bytes = 0;  // the largest unit, rounded up to whole pages
  std::uint32_t slots = 0;
  std::vector<bool> pinned;  // per unit: never evicted once read

  std::uint64_t arena_bytes() const { return slots * slot_bytes; }
  std::uint32_t pinned_units() const;
};

// Divides `budget_gb` (10^9 bytes) into slots for a pass of `units` units. All units are pinned
// when they fit. Otherwise a ring of up to four slots is kept for streaming and the rest is pinned,
// spread evenly over the pass: while pinned units are being used the disk goes on reading the
// others, where a pinned prefix would leave it idle. kUsage when the budget is not a positive
// number or holds no slot, naming both sizes. `units` and `largest_unit_bytes` are positive.
Result<TrunkPlan> plan_trunk(std::uint32_t units, std::uint64_t largest_unit_bytes,
                             double budget_gb);

}  // namespace k3::trunk
