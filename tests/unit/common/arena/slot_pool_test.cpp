// Slot transitions, and the death of a process that breaks their rules.
#include "common/arena/slot_pool.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

namespace k3 {
namespace {

class SlotPoolTest : public testing::Test {
 protected:
  std::size_t sealed_slot() {
    const std::size_t slot = pool_.begin_fill().value();
    pool_.seal(slot);
    return slot;
  }

  std::vector<std::byte> arena_ = std::vector<std::byte>(3 * 100 + 99);
  SlotPool pool_{arena_, 3, 100};
};
using SlotPoolDeathTest = SlotPoolTest;

TEST_F(SlotPoolTest, HandsOutEverySlotOnceThenNothing) {
  std::set<std::size_t> seen;
  for (int i = 0; i < 3; ++i) {
    const std::optional<std::size_t> slot = pool_.begin_fill();
    ASSERT_TRUE(slot);
    EXPECT_EQ(pool_.state(*slot), SlotState::kFilling);
    seen.insert(*slot);
  }
  EXPECT_EQ(seen, (std::set<std::size_t>{0, 1, 2}));
  EXPECT_FALSE(pool_.begin_fill());
}

TEST_F(SlotPoolTest, SlotsCoverTheArenaWithoutOverlap) {
  for (std::size_t slot = 0; slot < 3; ++slot) {
    EXPECT_EQ(pool_.bytes(slot).data(), arena_.data() + slot * 100);
    EXPECT_EQ(pool_.bytes(slot).size(), 100u);
    EXPECT_EQ(pool_.offset(slot), slot * 100);
  }
}

TEST_F(SlotPoolTest, FreedSlotIsHandedOutAgain) {
  const std::size_t slot = sealed_slot();
  EXPECT_EQ(pool_.state(slot), SlotState::kSealed);
  pool_.begin_fill();
  pool_.begin_fill();
  EXPECT_FALSE(pool_.begin_fill());
  pool_.free(slot);
  EXPECT_EQ(pool_.state(slot), SlotState::kFree);
  EXPECT_EQ(pool_.begin_fill(), slot);
}

TEST_F(SlotPoolTest, AFailedFillIsFreed) {
  const std::size_t slot = pool_.begin_fill().value();
  pool_.free(slot);
  EXPECT_EQ(pool_.state(slot), SlotState::kFree);
}

TEST_F(SlotPoolTest, APoolOfOneSlotWorks) {
  SlotPool pool(arena_, 1, arena_.size());
  EXPECT_EQ(pool.begin_fill(), 0u);
  EXPECT_FALSE(pool.begin_fill());
}

TEST_F(SlotPoolTest, LeasesAreCounted) {
  const std::size_t slot = sealed_slot();
  EXPECT_FALSE(pool_.leased(slot));
  {
    const Lease first(pool_, slot);
    {
      const Lease second(pool_, slot);
      EXPECT_TRUE(pool_.leased(slot));
    }
    EXPECT_TRUE(pool_.leased(slot));
  }
  EXPECT_FALSE(pool_.leased(slot));
}

TEST_F(SlotPoolTest, MovedLeaseReleasesOnce) {
  const std::size_t first = sealed_slot();
  const std::size_t second = sealed_slot();
  {
    Lease lease(pool_, first);
    Lease moved(std::move(lease));
    EXPECT_EQ(moved.slot(), first);
    EXPECT_TRUE(pool_.leased(first));
    Lease other(pool_, second);
    moved = std::move(other);
    EXPECT_EQ(moved.slot(), second);
    EXPECT_FALSE(pool_.leased(first));
    EXPECT_TRUE(pool_.leased(second));
  }
  EXPECT_FALSE(pool_.leased(second));
}

TEST_F(SlotPoolDeathTest, RefusesSlotsBeyondTheArena) {
  EXPECT_DEATH(SlotPool(arena_, 4, 100), "4 slots of 100 bytes in an arena of 399");
  EXPECT_DEATH(SlotPool(arena_, ~std::size_t{0} / 50, 100), "in an arena of 399");
  EXPECT_DEATH(SlotPool(arena_, 1, 0), "1 slots of 0 bytes");
}

TEST_F(SlotPoolDeathTest, SealsOnlyAFillingSlot) {
  EXPECT_DEATH(pool_.seal(0), "sealing slot 0, which is free");
  const std::size_t slot = sealed_slot();
  EXPECT_DEATH(pool_.seal(slot), "which is sealed");
}

TEST_F(SlotPoolDeathTest, FreesOnlyAnUnleasedUsedSlot) {
  EXPECT_DEATH(pool_.free(1), "freeing slot 1, which is free");
  const std::size_t slot = sealed_slot();
  const Lease lease(pool_, slot);
  EXPECT_DEATH(pool_.free(slot), "under 1 leases");
}

TEST_F(SlotPoolDeathTest, LeasesOnlyASealedSlot) {
  EXPECT_DEATH(Lease(pool_, 0), "leasing slot 0, which is free");
  const std::size_t slot = pool_.begin_fill().value();
  EXPECT_DEATH(Lease(pool_, slot), "which is filling");
}

TEST_F(SlotPoolDeathTest, RefusesAnIndexOutOfRange) {
  EXPECT_DEATH(pool_.bytes(3), "slot 3 of 3");
  EXPECT_DEATH(pool_.seal(3), "slot 3 of 3");
  EXPECT_DEATH(pool_.free(3), "slot 3 of 3");
  EXPECT_DEATH(Lease(pool_, 3), "slot 3 of 3");
}

}  // namespace
}  // namespace k3
