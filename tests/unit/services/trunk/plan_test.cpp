// Budgets, slots and the spread of pinned units.
#include "services/trunk/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace k3::trunk {
namespace {

using testing::HasSubstr;

TEST(TrunkPlan, RoundsTheSlotUpToAPage) {
  EXPECT_EQ(plan_trunk(10, 4097, 1)->slot_bytes, 8192u);
  EXPECT_EQ(plan_trunk(10, 8192, 1)->slot_bytes, 8192u);
}

TEST(TrunkPlan, PinsEverythingThatFits) {
  const TrunkPlan plan = plan_trunk(10, 100'000'000, 5).value();
  EXPECT_EQ(plan.slots, 10u);
  EXPECT_EQ(plan.pinned_units(), 10u);
  EXPECT_EQ(plan.arena_bytes(), 10 * plan.slot_bytes);
}

TEST(TrunkPlan, KeepsARingAndSpreadsThePinnedUnits) {
  // 4096-byte slots; 24 of 100 units fit: 20 pinned, one in every five.
  const TrunkPlan plan = plan_trunk(100, 4096, 24 * 4096 / 1e9).value();
  EXPECT_EQ(plan.slots, 24u);
  EXPECT_EQ(plan.pinned_units(), 20u);
  for (int group = 0; group < 20; ++group) {
    int pinned = 0;
    for (int i = 0; i < 5; ++i) pinned += plan.pinned[group * 5 + i] ? 1 : 0;
    EXPECT_EQ(pinned, 1) << "group " << group;
  }
}

TEST(TrunkPlan, SmallBudgetsAreAllRing) {
  for (const int slots : {1, 2, 3, 4}) {
    const TrunkPlan plan = plan_trunk(100, 4096, (slots * 4096 + 1) / 1e9).value();
    EXPECT_EQ(plan.slots, static_cast<std::uint32_t>(slots));
    EXPECT_EQ(plan.pinned_units(), 0u);
  }
}

TEST(TrunkPlan, ABudgetOfWholeSlotsInDecimalLosesNone) {
  for (std::uint32_t slots = 1; slots <= 1000; ++slots) {
    EXPECT_EQ(plan_trunk(1000, 4096, slots * 4096 / 1e9)->slots, slots);
  }
}

TEST(TrunkPlan, RefusesLessThanOneSlotWithBothNumbers) {
  const auto plan = plan_trunk(10, 2'000'000, 0.001);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kUsage);
  EXPECT_THAT(plan.error().message, HasSubstr("1000000"));
  EXPECT_THAT(plan.error().message, HasSubstr("2002944"));  // 489 pages
}

TEST(TrunkPlan, RefusesBudgetsThatAreNoSize) {
  for (const double budget : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    const auto plan = plan_trunk(10, 4096, budget);
    ASSERT_FALSE(plan) << budget;
    EXPECT_EQ(plan.error().code, ErrorCode::kUsage);
  }
  EXPECT_THAT(plan_trunk(10, 4096, -1.5).error().message, HasSubstr("-1.5"));
}

}  // namespace
}  // namespace k3::trunk
