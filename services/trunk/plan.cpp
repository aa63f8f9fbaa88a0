#include "services/trunk/plan.h"

#include <algorithm>
#include <cmath>

namespace k3::trunk {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
// One unit in use, one ready, two being read.
constexpr std::uint32_t kRingSlots = 4;
constexpr double kLargestBudgetGb = 1e6;

}  // namespace

std::uint32_t TrunkPlan::pinned_units() const {
  return static_cast<std::uint32_t>(std::count(pinned.begin(), pinned.end(), true));
}

Result<TrunkPlan> plan_trunk(std::uint32_t units, std::uint64_t largest_unit_bytes,
                             double budget_gb) {
  if (!(budget_gb > 0 && budget_gb <= kLargestBudgetGb)) {  // also refuses NaN
    return fail(ErrorCode::kUsage, "trunk budget {} GB: expected more than 0 and at most {} GB",
                budget_gb, kLargestBudgetGb);
  }
  TrunkPlan plan;
  plan.slot_bytes = (largest_unit_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  const auto budget_bytes = static_cast<std::uint64_t>(std::llround(budget_gb * 1e9));
  plan.slots =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(units, budget_bytes / plan.slot_bytes));
  if (plan.slots == 0) {
    return fail(ErrorCode::kUsage,
                "trunk budget of {} bytes is below one slot of {} bytes (the largest unit): raise "
                "--trunk-gb, or make units smaller (--unit-mb here or in k3 pack)",
                budget_bytes, plan.slot_bytes);
  }
  plan.pinned.assign(units, plan.slots == units);
  if (plan.slots < units) {
    const std::uint64_t pinned = plan.slots - std::min(plan.slots, kRingSlots);
    for (std::uint64_t i = 0; i < pinned; ++i) plan.pinned[i * units / pinned] = true;
  }
  return plan;
}

}  // namespace k3::trunk
