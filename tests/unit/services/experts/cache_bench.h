// An expert cache whose disk and clients are played by the test.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/experts/expert_cache.h"
#include "services/experts/lru_policy.h"

namespace k3::experts::test {

using BatchName = std::pair<std::uint64_t, std::uint64_t>;  // client, batch number

// Three MoE layers after one dense one. The content of a slot is its expert's id.
class CacheBench {
 public:
  static constexpr std::size_t kSlotBytes = sizeof(std::uint64_t);

  CacheBench(std::size_t slots, std::uint32_t experts)
      : shape{4, 1, experts},
        memory_(slots * kSlotBytes, std::byte{0xff}),
        pool_(memory_, slots, kSlotBytes),
        cache_(shape, pool_, std::make_unique<LruPolicy>(),
               {[this](const ExpertCache::Read& read) {
                  EXPECT_EQ(pool_.state(read.slot), SlotState::kFilling);
                  reading.push_back(read);
                },
                [this](std::uint64_t client, std::uint64_t batch,
                       const std::vector<ExpertCache::Arrival>& arrivals) {
                  messages.push_back({{client, batch}, arrivals});
                  for (const ExpertCache::Arrival& arrival : arrivals) {
                    EXPECT_TRUE(pool_.leased(arrival.slot));
                    EXPECT_EQ(content(arrival.slot), arrival.id);
                    EXPECT_TRUE((arrived[{client, batch}].emplace(arrival.id, arrival).second));
                  }
                },
                [this](std::uint64_t client, std::uint64_t batch, ExpertId id, const Error& error) {
                  EXPECT_TRUE((failed[{client, batch}].emplace(id, error.message).second));
                }}) {}

  ExpertCache& operator*() { return cache_; }
  ExpertCache* operator->() { return &cache_; }
  const SlotPool& pool() const { return pool_; }

  Status fetch(std::uint64_t client, std::uint64_t batch, std::uint32_t layer,
               std::vector<std::uint32_t> experts) {
    return cache_.fetch(client, {batch, layer, std::move(experts), 0});
  }

  std::uint64_t content(std::size_t slot) const {
    std::uint64_t id = 0;
    std::memcpy(&id, memory_.data() + slot * kSlotBytes, sizeof id);
    return id;
  }

  // Ends the reads at these positions of `reading` in one go.
  void finish(const std::set<std::size_t>& positions, const Status& status = {}) {
    std::vector<ExpertCache::ReadEnd> ends;
    for (auto at = positions.rbegin(); at != positions.rend(); ++at) {
      const ExpertCache::Read read = reading.at(*at);
      reading.erase(reading.begin() + static_cast<std::ptrdiff_t>(*at));
      EXPECT_EQ(pool_.state(read.slot), SlotState::kFilling);
      const std::uint64_t id = status ? read.id : ~std::uint64_t{0};
      std::memcpy(pool_.bytes(read.slot).data(), &id, sizeof id);
      ends.push_back({read.id, status});
    }
    cache_.reads_ended(ends);
  }

  void finish_all() {
    while (!reading.empty()) finish({0});
  }

  // Every leased slot still holds its expert.
  void check_leases() const {
    for (const auto& [name, experts] : arrived) {
      for (const auto& [id, arrival] : experts) {
        EXPECT_EQ(content(arrival.slot), id);
        EXPECT_TRUE(pool_.leased(arrival.slot));
      }
    }
  }

  bool release(std::uint64_t client, std::uint64_t batch) {
    check_leases();
    arrived.erase({client, batch});
    failed.erase({client, batch});
    return cache_.release(client, batch);
  }

  std::set<ExpertId> reading_ids() const {
    std::set<ExpertId> ids;
    for (const ExpertCache::Read& read : reading) ids.insert(read.id);
    return ids;
  }

  const ExpertCache::Shape shape;
  std::vector<ExpertCache::Read> reading;
  std::vector<std::pair<BatchName, std::vector<ExpertCache::Arrival>>> messages;
  std::map<BatchName, std::map<ExpertId, ExpertCache::Arrival>> arrived;  // of open batches
  std::map<BatchName, std::map<ExpertId, std::string>> failed;

 private:
  std::vector<std::byte> memory_;
  SlotPool pool_;
  ExpertCache cache_;
};

}  // namespace k3::experts::test
