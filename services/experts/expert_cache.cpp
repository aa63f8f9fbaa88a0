#include "services/experts/expert_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "common/base/check.h"
#include "common/observe/spans.h"

namespace k3::experts {

using ipc::ExpertOrigin;

ExpertCache::ExpertCache(Shape shape, SlotPool& pool, std::unique_ptr<ReplacementPolicy> policy,
                         Callbacks callbacks)
    : shape_(shape),
      pool_(pool),
      policy_(std::move(policy)),
      callbacks_(std::move(callbacks)),
      entries_(shape.total()) {}

Status ExpertCache::fetch(ClientId client, const ipc::Fetch& request) {
  if (request.experts.size() > pool_.slots()) {
    return fail(ErrorCode::kUsage,
                "batch {}: {} experts of layer {} asked for at once, the cache has {} slots",
                request.batch, request.experts.size(), request.layer, pool_.slots());
  }
  K3_TRY(check(request.layer, request.experts));
  if (open_.contains({client, request.batch})) {
    return fail(ErrorCode::kUsage, "batch {}: already open, expected a new number", request.batch);
  }
  const auto first = open_.lower_bound({client, 0});
  const auto last = open_.upper_bound({client, std::numeric_limits<std::uint64_t>::max()});
  if (static_cast<std::size_t>(std::distance(first, last)) >= kMaxOpenBatches) {
    return fail(ErrorCode::kUsage, "batch {}: {} batches are open already, the most allowed",
                request.batch, kMaxOpenBatches);
  }
  const BatchKey key = next_key_++;
  Batch& batch = batches_[key];
  batch.client = client;
  batch.number = request.batch;
  batch.urgent = request.urgency == 0;
  for (const std::uint32_t expert : request.experts) {
    batch.experts.push_back(id_of(request.layer, expert));
  }
  batch.waits_since_ns = spans::on() ? spans::now_ns() : 0;
  open_[{client, request.batch}] = key;
  waiting_.push_back(key);
  ++counters_.fetches;
  admit_waiting();
  return {};
}

bool ExpertCache::release(ClientId client, std::uint64_t batch) {
  const auto found = open_.find({client, batch});
  if (found == open_.end()) return false;
  close(found->second);
  open_.erase(found);
  admit_waiting();
  return true;
}

void ExpertCache::drop(ClientId client) {
  auto next = open_.lower_bound({client, 0});
  while (next != open_.end() && next->first.first == client) {
    close(next->second);
    next = open_.erase(next);
  }
  admit_waiting();
}

Status ExpertCache::hint(const ipc::Hint& request) {
  K3_TRY(check(request.layer, request.experts));
  // First, so that making room for one hinted expert does not evict another.
  for (const std::uint32_t expert : request.experts) {
    const ExpertId id = id_of(request.layer, expert);
    if (entries_[id].state == State::kResident) policy_->expect(id);
  }
  for (const std::uint32_t expert : request.experts) {
    const ExpertId id = id_of(request.layer, expert);
    if (entries_[id].state != State::kAbsent) continue;
    if (!waiting_.empty() || free_slots() + evictable_ == 0) {
      ++counters_.hints_dropped;
      continue;
    }
    ++counters_.hints_read;
    entries_[id].undemanded = true;
    begin_read(id, false);
  }
  return {};
}

void ExpertCache::reads_ended(std::span<const ReadEnd> ends) {
  std::map<BatchKey, std::vector<Arrival>> arrivals;
  for (const ReadEnd& end : ends) {
    Entry& entry = entries_.at(end.id);
    K3_CHECK(entry.state == State::kReading, fmt::format("expert {} was not being read", end.id));
    --reading_;
    if (end.status) {
      entry.state = State::kResident;
      pool_.seal(entry.slot);
      policy_->insert(end.id);
      if (entry.undemanded) policy_->expect(end.id);
      ++resident_;
      ++evictable_;
    } else {
      entry.state = State::kAbsent;
      entry.undemanded = false;
      pool_.free(entry.slot);
      ++counters_.read_errors;
    }
    for (const Waiter& waiter : std::exchange(entry.waiters, {})) {
      const auto batch = batches_.find(waiter.batch);
      if (batch == batches_.end()) continue;
      if (end.status) {
        arrivals[waiter.batch].push_back(lease(batch->second, end.id, waiter.origin));
      } else {
        callbacks_.failed(batch->second.client, batch->second.number, end.id, end.status.error());
      }
    }
  }
  for (const auto& [key, experts] : arrivals) {
    const Batch& batch = batches_.at(key);
    callbacks_.arrived(batch.client, batch.number, experts);
  }
  admit_waiting();
}

ExpertCache::Counters ExpertCache::counters() const {
  Counters counters = counters_;
  counters.fetches_waiting = waiting_.size();
  return counters;
}

Status ExpertCache::check(std::uint32_t layer, const std::vector<std::uint32_t>& experts) const {
  if (layer < shape_.dense_layers || layer >= shape_.layers) {
    return fail(ErrorCode::kUsage, "layer {}: layers {}..{} have routed experts", layer,
                shape_.dense_layers, static_cast<std::int64_t>(shape_.layers) - 1);
  }
  std::unordered_set<std::uint32_t> seen;
  for (const std::uint32_t expert : experts) {
    if (expert >= shape_.experts) {
      return fail(ErrorCode::kUsage, "layer {} expert {}: the layer has experts 0..{}", layer,
                  expert, shape_.experts - 1);
    }
    if (!seen.insert(expert).second) {
      return fail(ErrorCode::kUsage, "layer {} expert {}: asked for twice in one list", layer,
                  expert);
    }
  }
  return {};
}

ExpertId ExpertCache::id_of(std::uint32_t layer, std::uint32_t expert) const {
  return (layer - shape_.dense_layers) * shape_.experts + expert;
}

// Strictly in order: a fetch that finds no room holds up those behind it, so that it is never
// overtaken for ever.
void ExpertCache::admit_waiting() {
  while (!waiting_.empty()) {
    const BatchKey key = waiting_.front();
    Batch& batch = batches_.at(key);
    if (!fits(batch)) return;
    waiting_.pop_front();
    start(key, batch);
  }
}

bool ExpertCache::fits(const Batch& batch) const {
  std::size_t missing = 0;
  std::size_t kept = 0;  // evictable, but wanted by this very batch
  for (const ExpertId id : batch.experts) {
    if (entries_[id].state == State::kAbsent) ++missing;
    if (evictable(id)) ++kept;
  }
  return missing <= free_slots() + evictable_ - kept;
}

void ExpertCache::start(BatchKey key, Batch& batch) {
  if (batch.waits_since_ns != 0) {
    spans::record_since(batch.waits_since_ns, "admission wait",
                        static_cast<std::uint32_t>(batch.experts.size()));
  }
  policy_->demand(batch.experts);
  std::vector<Arrival> present;
  std::vector<ExpertId> absent;
  for (const ExpertId id : batch.experts) {  // lease first what must not be evicted for the rest
    Entry& entry = entries_[id];
    if (entry.state == State::kAbsent) {
      absent.push_back(id);
    } else if (entry.state == State::kReading) {
      entry.waiters.push_back({key, count_demand(entry)});
    } else {
      present.push_back(lease(batch, id, count_demand(entry)));
    }
  }
  counters_.misses += absent.size();
  for (const ExpertId id : absent) {
    entries_[id].waiters.push_back({key, ExpertOrigin::kMiss});
    begin_read(id, batch.urgent);
  }
  if (!present.empty()) callbacks_.arrived(batch.client, batch.number, present);
}

// Of an expert that is resident or being read.
ExpertOrigin ExpertCache::count_demand(Entry& entry) {
  const bool prefetched = std::exchange(entry.undemanded, false);
  ++(prefetched ? counters_.prefetched_hits : counters_.hits);
  return prefetched ? ExpertOrigin::kPrefetched : ExpertOrigin::kHit;
}

ExpertCache::Arrival ExpertCache::lease(Batch& batch, ExpertId id, ExpertOrigin origin) {
  const std::size_t slot = entries_[id].slot;
  if (!pool_.leased(slot)) --evictable_;
  batch.leases.emplace_back(pool_, slot);
  ++counters_.leases_now;
  return {id, origin, slot};
}

void ExpertCache::close(BatchKey key) {
  const auto found = batches_.find(key);
  std::vector<Lease>& leases = found->second.leases;
  counters_.leases_now -= leases.size();
  while (!leases.empty()) {
    const std::size_t slot = leases.back().slot();
    leases.pop_back();
    if (!pool_.leased(slot)) ++evictable_;
  }
  std::erase(waiting_, key);
  batches_.erase(found);
}

bool ExpertCache::evictable(ExpertId id) const {
  const Entry& entry = entries_[id];
  return entry.state == State::kResident && !pool_.leased(entry.slot);
}

// A slot must be free or evictable.
void ExpertCache::begin_read(ExpertId id, bool urgent) {
  if (free_slots() == 0) {
    const auto victim = policy_->victim([this](ExpertId other) { return evictable(other); });
    K3_CHECK(victim, fmt::format("no victim among {} evictable experts", evictable_));
    policy_->erase(*victim);
    pool_.free(entries_[*victim].slot);
    entries_[*victim].state = State::kAbsent;
    entries_[*victim].undemanded = false;
    --resident_;
    --evictable_;
    ++counters_.evictions;
  }
  Entry& entry = entries_[id];
  entry.state = State::kReading;
  entry.slot = pool_.begin_fill().value();
  ++reading_;
  callbacks_.read({id, entry.slot, urgent});
}

}  // namespace k3::experts
