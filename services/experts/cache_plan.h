// How a memory budget becomes expert slots.
#pragma once

#include <cstdint>

#include "common/base/result.h"

namespace k3::experts {

struct CachePlan {
  std::uint64_t slot_bytes = 0;  // one expert, rounded up to a cache line of 64 bytes
  std::uint32_t slots = 0;

  std::uint64_t arena_bytes() const { return slots * slot_bytes; }
};

// As many slots as `budget_gb` (10^9 bytes) holds, at most one for each of `experts` experts of
// `expert_bytes` bytes. kUsage when the budget is not a positive number or holds no slot, naming
// both sizes.
Result<CachePlan> plan_cache(std::uint64_t experts, std::uint64_t expert_bytes, double budget_gb);

}  // namespace k3::experts
