// The state of the expert cache: who waits for what, who holds what, what is read and evicted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/arena/slot_pool.h"
#include "common/base/result.h"
#include "common/ipc/messages.h"
#include "services/experts/replacement_policy.h"

namespace k3::experts {

// Pure bookkeeping: no I/O, and a clock for spans alone. One thread; callbacks run inside the calls
// below and must not call back.
//
// A fetch is admitted as a whole, in order of arrival over all clients, as soon as every expert it
// misses can be given a slot without evicting a leased one; until then it waits. Nothing is ever
// dropped: each expert of a batch arrives or fails exactly once, unless the batch is released
// first.
class ExpertCache {
 public:
  using ClientId = std::uint64_t;

  // Layers dense_layers..layers-1 have `experts` routed experts each.
  struct Shape {
    std::uint32_t layers = 0;
    std::uint32_t dense_layers = 0;
    std::uint32_t experts = 0;

    std::uint32_t total() const { return (layers - dense_layers) * experts; }
    std::uint32_t layer_of(ExpertId id) const { return dense_layers + id / experts; }
    std::uint32_t expert_of(ExpertId id) const { return id % experts; }
  };

  struct Read {
    ExpertId id = 0;
    std::size_t slot = 0;
    bool urgent = false;
  };

  struct ReadEnd {
    ExpertId id = 0;
    Status status;
  };

  struct Arrival {
    ExpertId id = 0;
    ipc::ExpertOrigin origin = ipc::ExpertOrigin::kMiss;
    std::size_t slot = 0;
  };

  struct Callbacks {
    // Fill the slot, then pass the end to reads_ended.
    std::function<void(const Read&)> read;
    // These experts are leased to the batch.
    std::function<void(ClientId, std::uint64_t batch, const std::vector<Arrival>&)> arrived;
    std::function<void(ClientId, std::uint64_t batch, ExpertId, const Error&)> failed;
  };

  // Every expert of an admitted fetch counts once, as hit, prefetched hit or miss.
  struct Counters {
    std::uint64_t fetches = 0;          // accepted
    std::uint64_t hits = 0;             // resident, or being read for another fetch
    std::uint64_t prefetched_hits = 0;  // first demand of an expert read for a hint
    std::uint64_t misses = 0;           // caused a read
    std::uint64_t hints_read = 0;       // reads caused by hints
    std::uint64_t hints_dropped = 0;    // hinted, absent, and no slot to spare
    std::uint64_t evictions = 0;
    std::uint64_t read_errors = 0;
    std::uint64_t leases_now = 0;
    std::uint64_t fetches_waiting = 0;  // now
  };

  // Batches a client may have open at once.
  static constexpr std::size_t kMaxOpenBatches = 1024;

  // `pool` is borrowed, all its slots free.
  ExpertCache(Shape shape, SlotPool& pool, std::unique_ptr<ReplacementPolicy> policy,
              Callbacks callbacks);

  // Opens a batch. kUsage for more experts than slots, a layer without routed experts, an unknown
  // or repeated expert, a batch number that is open, or too many open batches.
  Status fetch(ClientId client, const ipc::Fetch& request);

  // Closes a batch: ends its leases, and its interest in what has not arrived (reads under way go
  // on and become resident). False when it is not open; nothing happens then.
  bool release(ClientId client, std::uint64_t batch);

  // Reads ahead into free or unleased slots, never while a fetch waits for slots. kUsage as fetch.
  Status hint(const ipc::Hint& request);

  // The client died: closes all its batches.
  void drop(ClientId client);

  // Reads given to Callbacks::read have ended. A failed expert is absent again.
  void reads_ended(std::span<const ReadEnd> ends);

  Counters counters() const;

 private:
  enum class State : std::uint8_t { kAbsent, kReading, kResident };
  using BatchKey = std::uint64_t;  // never reused, unlike a client's batch numbers

  struct Waiter {
    BatchKey batch = 0;
    ipc::ExpertOrigin origin = ipc::ExpertOrigin::kMiss;
  };

  struct Entry {
    State state = State::kAbsent;
    bool undemanded = false;  // read for a hint and not fetched yet
    std::size_t slot = 0;
    std::vector<Waiter> waiters;  // while reading; those of closed batches are skipped
  };

  struct Batch {
    ClientId client = 0;
    std::uint64_t number = 0;
    bool urgent = false;
    std::uint64_t waits_since_ns = 0;  // for its span; 0 when none is recorded
    std::vector<ExpertId> experts;
    std::vector<Lease> leases;
  };

  Status check(std::uint32_t layer, const std::vector<std::uint32_t>& experts) const;
  ExpertId id_of(std::uint32_t layer, std::uint32_t expert) const;
  void admit_waiting();
  bool fits(const Batch& batch) const;
  void start(BatchKey key, Batch& batch);
  ipc::ExpertOrigin count_demand(Entry& entry);
  Arrival lease(Batch& batch, ExpertId id, ipc::ExpertOrigin origin);
  void close(BatchKey key);
  bool evictable(ExpertId id) const;
  std::size_t free_slots() const { return pool_.slots() - reading_ - resident_; }
  void begin_read(ExpertId id, bool urgent);

  Shape shape_;
  SlotPool& pool_;
  std::unique_ptr<ReplacementPolicy> policy_;
  Callbacks callbacks_;
  std::vector<Entry> entries_;  // by ExpertId
  std::size_t reading_ = 0;
  std::size_t resident_ = 0;
  std::size_t evictable_ = 0;  // resident without a lease
  std::map<BatchKey, Batch> batches_;
  std::map<std::pair<ClientId, std::uint64_t>, BatchKey> open_;  // by client and batch number
  std::deque<BatchKey> waiting_;                                 // not admitted yet
  BatchKey next_key_ = 0;
  Counters counters_;
};

}  // namespace k3::experts
