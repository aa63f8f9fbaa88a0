// Random histories of the expert cache against a model that knows only the rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/unit/services/experts/cache_bench.h"

namespace k3::experts {
namespace {

using ipc::ExpertOrigin;
using test::BatchName;
using test::CacheBench;

// Plays one history and keeps its own account of what every batch has to get.
class History {
 public:
  History(std::uint32_t seed, bool failures)
      : random_(seed),
        failures_(failures),
        slots_(1 + below(8)),
        experts_(static_cast<std::uint32_t>(2 + below(12))),
        cache_(slots_, experts_) {}

  void play(int steps) {
    for (int step = 0; step < steps; ++step) {
      const std::uint64_t client = 1 + below(3);
      switch (below(10)) {
        case 0:
        case 1:
        case 2:
          fetch(client);
          break;
        case 3:
        case 4:
          release_one();
          break;
        case 5:
          ASSERT_TRUE(cache_->hint({layer(), some_experts(experts_)}));
          break;
        case 6:
          if (below(40) == 0) drop(client);
          break;
        default:
          finish_some();
      }
      check();
      if (testing::Test::HasFailure()) return;
    }
    drain();
  }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  std::uint32_t layer() { return 1 + static_cast<std::uint32_t>(below(3)); }

  std::vector<std::uint32_t> some_experts(std::size_t most) {
    std::vector<std::uint32_t> all(experts_);
    std::iota(all.begin(), all.end(), 0u);
    std::shuffle(all.begin(), all.end(), random_);
    all.resize(1 + below(std::min<std::size_t>(most, experts_)));
    return all;
  }

  void fetch(std::uint64_t client) {
    const ipc::Fetch request{next_batch_++, layer(), some_experts(slots_), 0};
    std::set<ExpertId> ids;
    for (const std::uint32_t expert : request.experts) {
      ids.insert((request.layer - 1) * experts_ + expert);
    }
    open_[{client, request.batch}] = ids;
    ASSERT_TRUE(cache_->fetch(client, request));
  }

  void release_one() {
    if (open_.empty()) return;
    const auto chosen = std::next(open_.begin(), static_cast<std::ptrdiff_t>(below(open_.size())));
    close(chosen->first);
    ASSERT_TRUE(cache_.release(chosen->first.first, chosen->first.second));
    open_.erase(chosen);
  }

  void drop(std::uint64_t client) {
    std::erase_if(open_, [&](const auto& batch) {
      if (batch.first.first != client) return false;
      close(batch.first);
      cache_.arrived.erase(batch.first);
      cache_.failed.erase(batch.first);
      return true;
    });
    cache_->drop(client);
  }

  // Adds a batch that ends to the account of demands.
  void close(const BatchName& batch) {
    for (const auto& [id, arrival] : cache_.arrived[batch]) ++origins_[arrival.origin];
  }

  void finish_some() {
    std::set<std::size_t> positions;
    for (std::size_t i = 0; i < cache_.reading.size(); ++i) {
      if (below(3) == 0) positions.insert(i);
    }
    const bool broken = failures_ && below(6) == 0;
    cache_.finish(positions, broken ? Status(fail(ErrorCode::kWeights, "broken")) : Status{});
  }

  void check() {
    cache_.check_leases();
    std::size_t leases = 0;
    for (const auto& [batch, experts] : cache_.arrived) {
      leases += experts.size();
      for (const auto& [id, arrival] : experts) {
        ASSERT_TRUE(open_.contains(batch) && open_[batch].contains(id));
        ASSERT_FALSE(cache_.failed[batch].contains(id));
      }
    }
    ASSERT_EQ(cache_->counters().leases_now, leases);
    ASSERT_LE(cache_.reading.size(), slots_);
    ASSERT_EQ(cache_.reading_ids().size(), cache_.reading.size());  // nothing is read twice at once
  }

  // Once the disk works and the clients release, every batch completes.
  void drain() {
    failures_ = false;
    while (!open_.empty()) {
      cache_.finish_all();
      const auto done = std::find_if(open_.begin(), open_.end(), [&](const auto& batch) {
        return cache_.arrived[batch.first].size() + cache_.failed[batch.first].size() ==
               batch.second.size();
      });
      ASSERT_NE(done, open_.end()) << "no batch can complete";
      close(done->first);
      ASSERT_TRUE(cache_.release(done->first.first, done->first.second));
      open_.erase(done);
    }
    cache_.finish_all();
    const ExpertCache::Counters counters = cache_->counters();
    EXPECT_EQ(counters.leases_now, 0u);
    EXPECT_EQ(counters.fetches_waiting, 0u);
    EXPECT_EQ(counters.fetches, next_batch_);
    // Demands counted at admission cover at least what arrived.
    EXPECT_GE(counters.hits, origins_[ExpertOrigin::kHit]);
    EXPECT_GE(counters.prefetched_hits, origins_[ExpertOrigin::kPrefetched]);
    EXPECT_GE(counters.misses, origins_[ExpertOrigin::kMiss]);
    EXPECT_LE(counters.prefetched_hits, counters.hints_read);
    // What was read is resident, was evicted, or failed.
    const std::uint64_t reads = counters.misses + counters.hints_read;
    std::size_t resident = 0;
    for (std::size_t slot = 0; slot < slots_; ++slot) {
      if (cache_.pool().state(slot) == SlotState::kSealed) ++resident;
    }
    EXPECT_EQ(reads, resident + counters.evictions + counters.read_errors);
  }

  std::mt19937 random_;
  bool failures_;
  std::size_t slots_;
  std::uint32_t experts_;
  CacheBench cache_;
  std::map<BatchName, std::set<ExpertId>> open_;
  std::map<ExpertOrigin, std::uint64_t> origins_;
  std::uint64_t next_batch_ = 0;
};

TEST(ExpertCacheModel, RandomHistories) {
  for (std::uint32_t seed = 0; seed < 100 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    History(seed, false).play(1000);
  }
}

TEST(ExpertCacheModel, RandomHistoriesWithFailedReads) {
  for (std::uint32_t seed = 1000; seed < 1100 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    History(seed, true).play(1000);
  }
}

// Without releases before arrival and without failures the demands are exactly what arrived.
TEST(ExpertCacheModel, CountersAddUpExactly) {
  std::mt19937 random(7);
  CacheBench cache(6, 12);
  std::uint64_t demanded = 0;
  std::map<ExpertOrigin, std::uint64_t> origins;
  for (std::uint64_t batch = 1; batch <= 5000; ++batch) {
    std::vector<std::uint32_t> all(12);
    std::iota(all.begin(), all.end(), 0u);
    std::shuffle(all.begin(), all.end(), random);
    const auto layer = 1 + static_cast<std::uint32_t>(random() % 3);
    if (random() % 2 == 0) {
      ASSERT_TRUE(cache->hint({layer, {all[0], all[3], all[11]}}));
    }
    all.resize(1 + random() % 6);
    ASSERT_TRUE(cache.fetch(1, batch, layer, all));
    demanded += all.size();
    cache.finish_all();
    for (const auto& [id, arrival] : cache.arrived[{1, batch}]) ++origins[arrival.origin];
    ASSERT_EQ((cache.arrived[{1, batch}].size()), all.size());
    ASSERT_TRUE(cache.release(1, batch));
  }
  const ExpertCache::Counters counters = cache->counters();
  EXPECT_EQ(counters.hits + counters.prefetched_hits + counters.misses, demanded);
  EXPECT_EQ(counters.hits, origins[ExpertOrigin::kHit]);
  EXPECT_EQ(counters.prefetched_hits, origins[ExpertOrigin::kPrefetched]);
  EXPECT_EQ(counters.misses, origins[ExpertOrigin::kMiss]);
  EXPECT_GT(counters.prefetched_hits, 0u);
  EXPECT_GT(counters.hits, 0u);
}

}  // namespace
}  // namespace k3::experts
