// Least recently used, with experts that may not be evicted.
#include "services/experts/lru_policy.h"

#include <gtest/gtest.h>

namespace k3::experts {
namespace {

bool any(ExpertId) { return true; }

TEST(LruPolicy, EvictsTheOldest) {
  LruPolicy policy;
  for (const ExpertId id : {5, 3, 9}) policy.insert(id);
  EXPECT_EQ(policy.victim(any), 5u);
  policy.demand(std::vector<ExpertId>{5, 77});  // 77 is not resident
  EXPECT_EQ(policy.victim(any), 3u);
  policy.erase(3);
  EXPECT_EQ(policy.victim(any), 9u);
}

TEST(LruPolicy, SkipsWhatIsNotEvictable) {
  LruPolicy policy;
  for (const ExpertId id : {1, 2, 3}) policy.insert(id);
  EXPECT_EQ(policy.victim([](ExpertId id) { return id > 1; }), 2u);
  EXPECT_EQ(policy.victim([](ExpertId) { return false; }), std::nullopt);
}

TEST(LruPolicy, AnErasedExpertMayComeBack) {
  LruPolicy policy;
  policy.insert(1);
  policy.insert(2);
  policy.erase(1);
  policy.insert(1);
  EXPECT_EQ(policy.victim(any), 2u);
  policy.erase(2);
  policy.erase(1);
  EXPECT_EQ(policy.victim(any), std::nullopt);
}

}  // namespace
}  // namespace k3::experts
