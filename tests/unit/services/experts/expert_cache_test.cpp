// The expert cache, one rule at a time.
#include "services/experts/expert_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/services/experts/cache_bench.h"

namespace k3::experts {
namespace {

using ipc::ExpertOrigin;
using test::CacheBench;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ExpertCache, SubmitsAllMissesOfABatchTogether) {
  CacheBench cache(8, 10);
  ASSERT_TRUE(cache.fetch(1, 1, 2, {3, 0, 7}));
  EXPECT_EQ(cache.reading_ids(),
            (std::set<ExpertId>{13, 10, 17}));  // layer 2 is the second MoE one
  for (const ExpertCache::Read& read : cache.reading) EXPECT_TRUE(read.urgent);
  EXPECT_THAT(cache.messages, IsEmpty());
}

TEST(ExpertCache, AnswersHitsAtOnceInOneMessageAndMissesByDrain) {
  CacheBench cache(8, 10);
  ASSERT_TRUE(cache.fetch(1, 1, 1, {0, 1}));
  cache.finish({0, 1});
  ASSERT_EQ(cache.messages.size(), 1u);  // both came in one drain
  cache.release(1, 1);
  ASSERT_TRUE(cache.fetch(1, 2, 1, {0, 5, 1, 6}));
  ASSERT_EQ(cache.messages.size(), 2u);
  EXPECT_EQ(cache.messages[1].second.size(), 2u);
  EXPECT_EQ((cache.arrived[{1, 2}].at(0).origin), ExpertOrigin::kHit);
  cache.finish({1});
  cache.finish({0});
  EXPECT_EQ(cache.messages.size(), 4u);
  EXPECT_EQ((cache.arrived[{1, 2}].at(5).origin), ExpertOrigin::kMiss);
  EXPECT_EQ(cache->counters().hits, 2u);
  EXPECT_EQ(cache->counters().misses, 4u);
}

TEST(ExpertCache, SharesOneReadAndOneSlotBetweenClients) {
  CacheBench cache(1, 10);
  ASSERT_TRUE(cache.fetch(1, 1, 1, {4}));
  ASSERT_TRUE(cache.fetch(2, 1, 1, {4}));
  ASSERT_EQ(cache.reading.size(), 1u);
  cache.finish_all();
  EXPECT_EQ((cache.arrived[{1, 1}].at(4).slot), (cache.arrived[{2, 1}].at(4).slot));
  EXPECT_EQ(cache->counters().leases_now, 2u);
  EXPECT_EQ(cache->counters().misses, 1u);
  EXPECT_EQ(cache->counters().hits, 1u);
  cache.release(1, 1);
  ASSERT_TRUE(cache.fetch(1, 2, 1, {5}));
  EXPECT_THAT(cache.reading, IsEmpty());  // client 2 still holds the slot
  cache.release(2, 1);
  EXPECT_EQ(cache.reading_ids(), std::set<ExpertId>{5});
}

// C22
TEST(ExpertCache, RefusesMoreExpertsThanSlotsWithBothNumbers) {
  CacheBench cache(3, 10);
  const Status refused = cache.fetch(1, 1, 1, {0, 1, 2, 3});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_THAT(refused.error().message, HasSubstr("4 experts"));
  EXPECT_THAT(refused.error().message, HasSubstr("3 slots"));
  EXPECT_TRUE(cache.fetch(1, 1, 1, {0, 1, 2}));
}

TEST(ExpertCache, RefusesWhatDoesNotExist) {
  CacheBench cache(4, 10);
  for (const auto& [layer, experts] :
       std::vector<std::pair<std::uint32_t, std::vector<std::uint32_t>>>{{0, {1}},
                                                                         {4, {1}},
                                                                         {4'000'000'000u, {1}},
                                                                         {1, {10}},
                                                                         {1, {0, 4'000'000'000u}},
                                                                         {1, {3, 3}}}) {
    const Status fetch = cache.fetch(1, 1, layer, experts);
    ASSERT_FALSE(fetch) << layer;
    EXPECT_EQ(fetch.error().code, ErrorCode::kUsage);
    EXPECT_THAT(fetch.error().message, HasSubstr(fmt::format("layer {}", layer)));
    EXPECT_FALSE(cache->hint({layer, experts}));
  }
  EXPECT_THAT(cache.reading, IsEmpty());
  EXPECT_EQ(cache->counters().fetches, 0u);
}

TEST(ExpertCache, RefusesAnOpenBatchNumber) {
  CacheBench cache(4, 10);
  ASSERT_TRUE(cache.fetch(1, 1, 1, {0}));
  EXPECT_EQ(cache.fetch(1, 1, 1, {2}).error().code, ErrorCode::kUsage);
  EXPECT_TRUE(cache.fetch(2, 1, 1, {2}));  // another client's numbers are its own
}

TEST(ExpertCache, LimitsOpenBatches) {
  CacheBench cache(4, 10);
  for (std::uint64_t batch = 0; batch < ExpertCache::kMaxOpenBatches; ++batch) {
    ASSERT_TRUE(cache.fetch(1, batch, 1, {0}));
  }
  EXPECT_FALSE(cache.fetch(1, ExpertCache::kMaxOpenBatches, 1, {0}));
  EXPECT_TRUE(cache.fetch(2, 0, 1, {0}));
  cache.release(1, 0);
  EXPECT_TRUE(cache.fetch(1, ExpertCache::kMaxOpenBatches, 1, {0}));
}

// C24
TEST(ExpertCache, WaitsWhileAllSlotsAreLeased) {
  CacheBench cache(2, 10);
  ASSERT_TRUE(cache.fetch(1, 1, 1, {0, 1}));
  cache.finish_all();
  ASSERT_TRUE(cache.fetch(1, 2, 1, {2, 3}));
  EXPECT_THAT(cache.reading, IsEmpty());
  EXPECT_EQ(cache->counters().fetches_waiting, 1u);
  cache.release(1, 1);
  EXPECT_EQ(cache.reading_ids(), (std::set<ExpertId>{2, 3}));
  cache.finish_all();
  EXPECT_EQ((cache.arrived[{1, 2}].size()), 2u);
  EXPECT_EQ(cache->counters().evictions, 2u);
}

TEST(ExpertCache, AdmitsInOrderOfArrival) {
  CacheBench cache(3, 10);
  ASSERT_TRUE(cache.fetch(1, 1, 1, {0, 1}));
  cache.finish_all();
  ASSERT_TRUE(cache.fetch(1, 2, 1, {2, 3, 4}));
  ASSERT_TRUE(cache.fetch(2, 1, 1, {5}));  // a slot is free, but it is not its turn
  EXPECT_THAT(cache.reading, IsEmpty());
  cache.release(1, 1);
  EXPECT_EQ(cache.reading_ids(), (std::set<ExpertId>{2, 3, 4}));
  cache.finish_all();
  cache.release(1, 2);
  EXPECT_EQ(cache.reading_ids(), std::set<ExpertId>{5});
}

TEST(ExpertCache, DoesNotEvictItsOwnHitsForItsMisses) {
  CacheBench cache(2, 10);
  ASSERT_TRUE(cache.fetch(1, 1, 1, {0, 1}));
  cache.finish_all();
  cache.release(1, 1);
  ASSERT_TRUE(cache.fetch(1, 2, 1, {5, 0}));  // 0 is the older one, and wanted
  cache.finish_all();
  EXPECT_EQ((cache.arrived[{1, 2}].at(0).origin), ExpertOrigin::kHit);
  cache.check_leases();
}

TEST(ExpertCache, AHitKeepsAnExpertFromBeingTheNextVictim) {
  CacheBench cache(2, 10);
  for (const std::uint32_t expert : {0, 1, 0}) {
    ASSERT_TRUE(cache.fetch(1, 1, 1, {expert}));
    cache.finish_all();
    cache.release(1, 1);
  }
  ASSERT_TRUE(cache.fetch(1, 1, 1, {5}));  // takes the slot of 1
  ASSERT_TRUE(cache.fetch(1, 2, 1, {0}));
  EXPECT_EQ((cache.arrived[{1, 2}].at(0).origin), ExpertOrigin::kHit);
}

TEST(ExpertCache, AReadGoesOnWhenItsBatchIsReleased) {
  CacheBench cache(2, 10);
  ASSERT_TRUE(cache.fetch(1, 1, 1, {0}));
  cache.release(1, 1);
  ASSERT_TRUE(cache.fetch(1, 1, 1, {1}));  // the same number: nothing of the old batch may show
  cache.finish_all();
  EXPECT_FALSE((cache.arrived[{1, 1}].contains(0)));
  EXPECT_TRUE((cache.arrived[{1, 1}].contains(1)));
  ASSERT_TRUE(cache.fetch(1, 2, 1, {0}));
  EXPECT_EQ((cache.arrived[{1, 2}].at(0).origin), ExpertOrigin::kHit);
}

TEST(ExpertCache, AReleaseIsIdempotentAndAnUnknownOneIgnored) {
  CacheBench cache(2, 10);
  EXPECT_FALSE(cache.release(1, 1));
  ASSERT_TRUE(cache.fetch(1, 1, 1, {0}));
  EXPECT_TRUE(cache.release(1, 1));
  EXPECT_FALSE(cache.release(1, 1));
}

TEST(ExpertCache, AWaitingBatchCanBeReleased) {
  CacheBench cache(1, 10);
  ASSERT_TRUE(cache.fetch(1, 1, 1, {0}));
  ASSERT_TRUE(cache.fetch(1, 2, 1, {1}));
  ASSERT_TRUE(cache.fetch(1, 3, 1, {2}));
  cache.release(1, 2);
  cache.finish_all();
  cache.release(1, 1);
  EXPECT_EQ(cache.reading_ids(), std::set<ExpertId>{2});
}

TEST(ExpertCache, ADeadClientHoldsNothing) {
  CacheBench cache(2, 10);
  ASSERT_TRUE(cache.fetch(1, 1, 1, {0}));
  cache.finish_all();
  ASSERT_TRUE(cache.fetch(1, 2, 1, {1}));     // being read
  ASSERT_TRUE(cache.fetch(1, 3, 1, {2, 3}));  // waiting
  ASSERT_TRUE(cache.fetch(2, 1, 1, {4}));     // of somebody else, behind it
  cache.arrived.clear();
  cache->drop(1);
  EXPECT_EQ(cache->counters().leases_now, 0u);
  EXPECT_EQ(cache.reading_ids(), (std::set<ExpertId>{1, 4}));
  cache.finish_all();
  ASSERT_EQ(cache.arrived.size(), 1u);
  EXPECT_TRUE((cache.arrived[{2, 1}].contains(4)));
}

// C25
TEST(ExpertCache, AFailedReadFailsEveryBatchThatWaitsAndIsReadAgain) {
  CacheBench cache(4, 10);
  ASSERT_TRUE(cache.fetch(1, 1, 1, {0, 1}));
  ASSERT_TRUE(cache.fetch(2, 9, 1, {0}));
  const std::size_t failing = cache.reading[0].id == 0 ? 0 : 1;
  cache.finish({failing}, fail(ErrorCode::kWeights, "layer 1 expert 0: no medium"));
  EXPECT_EQ((cache.failed[{1, 1}].at(0)), "layer 1 expert 0: no medium");
  EXPECT_EQ((cache.failed[{2, 9}].at(0)), "layer 1 expert 0: no medium");
  cache.finish_all();
  EXPECT_TRUE((cache.arrived[{1, 1}].contains(1)));  // the others still come
  EXPECT_EQ(cache->counters().read_errors, 1u);
  ASSERT_TRUE(cache.fetch(1, 2, 1, {0}));
  cache.finish_all();
  EXPECT_EQ((cache.arrived[{1, 2}].at(0).origin), ExpertOrigin::kMiss);
}

TEST(ExpertCache, AFailedReadGivesItsSlotToTheNextFetch) {
  CacheBench cache(1, 10);
  ASSERT_TRUE(cache.fetch(1, 1, 1, {0}));
  ASSERT_TRUE(cache.fetch(1, 2, 1, {1}));
  cache.finish({0}, fail(ErrorCode::kWeights, "broken"));
  EXPECT_EQ(cache.reading_ids(), std::set<ExpertId>{1});
}

// C26
TEST(ExpertCache, CountsPrefetchedHitsApart) {
  CacheBench cache(4, 10);
  ASSERT_TRUE(cache->hint({1, {0, 1}}));
  ASSERT_EQ(cache.reading.size(), 2u);
  EXPECT_FALSE(cache.reading[0].urgent);
  cache.finish({0});  // one is resident when demanded, one under way
  ASSERT_TRUE(cache.fetch(1, 1, 1, {0, 1, 2}));
  cache.finish_all();
  EXPECT_EQ((cache.arrived[{1, 1}].at(0).origin), ExpertOrigin::kPrefetched);
  EXPECT_EQ((cache.arrived[{1, 1}].at(1).origin), ExpertOrigin::kPrefetched);
  EXPECT_EQ((cache.arrived[{1, 1}].at(2).origin), ExpertOrigin::kMiss);
  ASSERT_TRUE(cache.fetch(1, 2, 1, {0, 1, 2}));
  for (const ExpertId id : {0, 1, 2}) {
    EXPECT_EQ((cache.arrived[{1, 2}].at(id).origin), ExpertOrigin::kHit);
  }
  const ExpertCache::Counters counters = cache->counters();
  EXPECT_EQ(counters.hits, 3u);
  EXPECT_EQ(counters.prefetched_hits, 2u);
  EXPECT_EQ(counters.misses, 1u);
  EXPECT_EQ(counters.hints_read, 2u);
  EXPECT_EQ(counters.hints_dropped, 0u);
}

TEST(ExpertCache, AHintNeverTakesALeasedSlot) {
  CacheBench cache(2, 10);
  ASSERT_TRUE(cache.fetch(1, 1, 1, {0, 1}));
  cache.finish_all();
  ASSERT_TRUE(cache->hint({1, {2}}));
  EXPECT_THAT(cache.reading, IsEmpty());
  EXPECT_EQ(cache->counters().hints_dropped, 1u);
}

TEST(ExpertCache, AHintNeverTakesASlotSomebodyWaitsFor) {
  CacheBench cache(3, 10);
  ASSERT_TRUE(cache.fetch(1, 1, 1, {0, 1}));
  cache.finish_all();
  ASSERT_TRUE(cache.fetch(2, 1, 1, {3, 4}));  // one slot is free, one more is needed
  ASSERT_TRUE(cache->hint({1, {2}}));
  EXPECT_THAT(cache.reading, IsEmpty());
  EXPECT_EQ(cache->counters().hints_dropped, 1u);
  EXPECT_EQ(cache->counters().hints_read, 0u);
}

TEST(ExpertCache, AHintKeepsTheHintedThatAreResident) {
  CacheBench cache(2, 10);
  ASSERT_TRUE(cache.fetch(1, 1, 1, {0}));
  cache.finish_all();
  ASSERT_TRUE(cache.fetch(1, 2, 1, {1}));
  cache.finish_all();
  cache.release(1, 1);
  cache.release(1, 2);
  ASSERT_TRUE(cache->hint({1, {2, 0}}));  // 0 is the oldest, but hinted as well
  cache.finish_all();
  EXPECT_EQ(cache->counters().hints_read, 1u);
  ASSERT_TRUE(cache.fetch(1, 3, 1, {0, 2}));
  EXPECT_EQ((cache.arrived[{1, 3}].at(0).origin), ExpertOrigin::kHit);
}

TEST(ExpertCache, AFailedHintIsSilentAndReadAgainOnDemand) {
  CacheBench cache(2, 10);
  ASSERT_TRUE(cache->hint({1, {0}}));
  cache.finish({0}, fail(ErrorCode::kWeights, "broken"));
  EXPECT_THAT(cache.failed, IsEmpty());
  EXPECT_EQ(cache->counters().read_errors, 1u);
  ASSERT_TRUE(cache.fetch(1, 1, 1, {0}));
  cache.finish_all();
  EXPECT_EQ((cache.arrived[{1, 1}].at(0).origin), ExpertOrigin::kMiss);
  ASSERT_TRUE(cache.fetch(1, 2, 1, {0}));
  EXPECT_EQ((cache.arrived[{1, 2}].at(0).origin), ExpertOrigin::kHit);
}

TEST(ExpertCache, AnEvictedHintIsAMissAgain) {
  CacheBench cache(1, 10);
  ASSERT_TRUE(cache->hint({1, {0}}));
  cache.finish_all();
  ASSERT_TRUE(cache.fetch(1, 1, 1, {1}));
  cache.finish_all();
  cache.release(1, 1);
  ASSERT_TRUE(cache.fetch(1, 2, 1, {0}));
  cache.finish_all();
  EXPECT_EQ((cache.arrived[{1, 2}].at(0).origin), ExpertOrigin::kMiss);
  ASSERT_TRUE(cache.fetch(1, 3, 1, {0}));
  EXPECT_EQ((cache.arrived[{1, 3}].at(0).origin), ExpertOrigin::kHit);
  EXPECT_EQ(cache->counters().prefetched_hits, 0u);
}

TEST(ExpertCache, UrgencyDecidesThePriorityOfReads) {
  CacheBench cache(4, 10);
  ASSERT_TRUE(cache->fetch(1, {1, 1, {0}, 0}));
  ASSERT_TRUE(cache->fetch(1, {2, 1, {1}, 3}));
  EXPECT_TRUE(cache.reading[0].urgent);
  EXPECT_FALSE(cache.reading[1].urgent);
}

TEST(ExpertCache, ABatchOfNothingIsOpenUntilReleased) {
  CacheBench cache(4, 10);
  ASSERT_TRUE(cache.fetch(1, 1, 1, {}));
  EXPECT_THAT(cache.messages, IsEmpty());
  EXPECT_FALSE(cache.fetch(1, 1, 1, {}));
  EXPECT_TRUE(cache.release(1, 1));
}

}  // namespace
}  // namespace k3::experts
