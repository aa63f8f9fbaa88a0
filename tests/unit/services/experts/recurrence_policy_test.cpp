// Scores, their decay by the layer's own demands, and what is expected.
#include "services/experts/recurrence_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace k3::experts {
namespace {

using Ids = std::vector<ExpertId>;
constexpr std::uint32_t kExperts = 10;  // a layer

bool any(ExpertId) { return true; }

// Demands the experts and makes all of them resident.
void ask(RecurrencePolicy& policy, const Ids& ids) {
  policy.demand(ids);
  for (const ExpertId id : ids) policy.insert(id);
}

TEST(RecurrencePolicy, EvictsTheLeastImportantOfOneDemand) {
  RecurrencePolicy policy(1, kExperts);
  ask(policy, {7, 2, 5});
  EXPECT_EQ(policy.victim(any), 5u);
  policy.erase(5);
  EXPECT_EQ(policy.victim(any), 2u);
}

TEST(RecurrencePolicy, RepeatsAddUpAndAgeFades) {
  RecurrencePolicy policy(1, kExperts);
  ask(policy, {1});
  ask(policy, {2});
  EXPECT_EQ(policy.victim(any), 1u) << "0.61 against 1";
  policy.demand(Ids{1});
  policy.demand(Ids{1});
  policy.demand(Ids{3});
  ask(policy, {4});
  policy.demand(Ids{4});
  policy.demand(Ids{5});
  EXPECT_EQ(policy.victim(any), 2u);
  policy.erase(2);
  EXPECT_EQ(policy.victim(any), 1u);
}

TEST(RecurrencePolicy, DoesNotEvictInTheOrderOfTheScan) {
  RecurrencePolicy policy(3, kExperts);
  for (int token = 0; token < 5; ++token) {
    for (const ExpertId layer : {0u, 1u, 2u}) policy.demand(Ids{layer * kExperts});
  }
  for (const ExpertId layer : {0u, 1u, 2u}) policy.insert(layer * kExperts);
  ask(policy, {1});  // once, in the layer used the longest time ago
  policy.demand(Ids{0});
  EXPECT_EQ(policy.victim(any), 1u) << "LRU evicts layer 1's expert, needed next";
}

TEST(RecurrencePolicy, RemembersWhatWasEvicted) {
  RecurrencePolicy policy(1, kExperts);
  for (int i = 0; i < 4; ++i) policy.demand(Ids{3});
  ask(policy, {4, 3});
  policy.erase(3);
  policy.insert(3);
  EXPECT_EQ(policy.victim(any), 4u);
}

TEST(RecurrencePolicy, WhatIsExpectedGoesLastUntilTheNextDemandOfItsLayer) {
  RecurrencePolicy policy(2, kExperts);
  ask(policy, {0, 1, 2});
  policy.expect(2);
  EXPECT_EQ(policy.victim(any), 1u);
  policy.demand(Ids{kExperts});
  EXPECT_EQ(policy.victim(any), 1u) << "a demand of another layer";
  EXPECT_EQ(policy.victim([](ExpertId id) { return id == 2; }), 2u);
  policy.demand(Ids{0});
  EXPECT_EQ(policy.victim(any), 2u);
}

TEST(RecurrencePolicy, NothingEvictableIsNoVictim) {
  RecurrencePolicy policy(2, kExperts);
  EXPECT_EQ(policy.victim(any), std::nullopt);
  ask(policy, {0, 1});
  EXPECT_EQ(policy.victim([](ExpertId) { return false; }), std::nullopt);
}

// Against scores kept as plain numbers that every demand multiplies, over thousands of demands.
TEST(RecurrencePolicy, ScoresAreTheDecayedSums) {
  constexpr std::uint32_t kLayers = 4;
  RecurrencePolicy policy(kLayers, kExperts);
  std::vector<double> scores(kLayers * kExperts, 0.0);
  std::map<ExpertId, bool> resident;
  std::mt19937 random(5);
  for (int step = 0; step < 5000; ++step) {
    const std::uint32_t first = random() % kLayers * kExperts;
    Ids ids;
    for (ExpertId id = first; id < first + kExperts; ++id) ids.push_back(id);
    std::shuffle(ids.begin(), ids.end(), random);
    ids.resize(1 + random() % 4);
    for (ExpertId id = first; id < first + kExperts; ++id) scores[id] *= std::exp(-0.5);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      scores[ids[i]] += 1 - 0.6 * static_cast<double>(i) / static_cast<double>(ids.size());
    }
    policy.demand(ids);
    for (const ExpertId id : ids) {
      if (!std::exchange(resident[id], true)) policy.insert(id);
    }
    std::size_t count[kLayers] = {};
    for (const auto& [id, here] : resident) count[id / kExperts] += here ? 1 : 0;
    const std::size_t total = std::accumulate(count, count + kLayers, std::size_t{0});
    std::size_t layer = first / kExperts;
    if (count[layer] == 0 || count[layer] < total / kLayers) {
      layer = static_cast<std::size_t>(std::max_element(count, count + kLayers) - count);
    }
    double lowest = HUGE_VAL;
    for (const auto& [id, here] : resident) {
      if (here && id / kExperts == layer) lowest = std::min(lowest, scores[id]);
    }
    const ExpertId victim = policy.victim(any).value();
    ASSERT_TRUE(resident[victim]);
    ASSERT_EQ(victim / kExperts, layer);
    ASSERT_NEAR(scores[victim], lowest, 1e-9 * (1 + lowest));
    if (step % 2 == 0) continue;
    policy.erase(victim);
    resident[victim] = false;
  }
}

}  // namespace
}  // namespace k3::experts
