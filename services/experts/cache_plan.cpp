#include "services/experts/cache_plan.h"

#include <algorithm>
#include <cmath>

namespace k3::experts {
namespace {

constexpr std::uint64_t kCacheLineBytes = 64;
constexpr double kLargestBudgetGb = 1e6;

}  // namespace

Result<CachePlan> plan_cache(std::uint64_t experts, std::uint64_t expert_bytes, double budget_gb) {
  if (!(budget_gb > 0 && budget_gb <= kLargestBudgetGb)) {  // also refuses NaN
    return fail(ErrorCode::kUsage, "cache budget {} GB: expected more than 0 and at most {} GB",
                budget_gb, kLargestBudgetGb);
  }
  CachePlan plan;
  plan.slot_bytes = (expert_bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
  const auto budget_bytes = static_cast<std::uint64_t>(std::llround(budget_gb * 1e9));
  plan.slots = static_cast<std::uint32_t>(std::min(experts, budget_bytes / plan.slot_bytes));
  if (plan.slots == 0) {
    return fail(ErrorCode::kUsage,
                "cache budget of {} bytes is below one expert of {} bytes: raise --cache-gb",
                budget_bytes, plan.slot_bytes);
  }
  return plan;
}

}  // namespace k3::experts
