// Budgets and expert slots.
#include "services/experts/cache_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace k3::experts {
namespace {

using testing::HasSubstr;

TEST(CachePlan, RoundsTheSlotUpToACacheLine) {
  EXPECT_EQ(plan_cache(10, 65, 1)->slot_bytes, 128u);
  EXPECT_EQ(plan_cache(10, 128, 1)->slot_bytes, 128u);
}

TEST(CachePlan, DividesTheBudget) {
  // The released expert: 8 GB hold 455 of them, as the reference simulator has it.
  EXPECT_EQ(plan_cache(82432, 17'547'264, 8)->slots, 455u);
  EXPECT_EQ(plan_cache(82432, 17'547'264, 8)->arena_bytes(), std::uint64_t{455} * 17'547'264);
}

TEST(CachePlan, ABudgetOfWholeSlotsInDecimalLosesNone) {
  for (std::uint32_t slots = 1; slots <= 1000; ++slots) {
    EXPECT_EQ(plan_cache(1000, 3264, slots * 3264 / 1e9)->slots, slots);
  }
}

TEST(CachePlan, NeedsNoMoreSlotsThanExperts) { EXPECT_EQ(plan_cache(10, 64, 1)->slots, 10u); }

TEST(CachePlan, RefusesLessThanOneExpertWithBothNumbers) {
  const auto plan = plan_cache(10, 17'547'264, 0.01);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kUsage);
  EXPECT_THAT(plan.error().message, HasSubstr("10000000"));
  EXPECT_THAT(plan.error().message, HasSubstr("17547264"));
}

TEST(CachePlan, RefusesBudgetsThatAreNoSize) {
  for (const double budget : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    const auto plan = plan_cache(10, 64, budget);
    ASSERT_FALSE(plan) << budget;
    EXPECT_EQ(plan.error().code, ErrorCode::kUsage);
  }
}

}  // namespace
}  // namespace k3::experts
