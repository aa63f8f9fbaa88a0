// The order of trunk reads: which unit is read next, into which slot, and who gets it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "common/arena/slot_pool.h"
#include "common/base/result.h"
#include "common/ipc/messages.h"

namespace k3::trunk {

// Pure bookkeeping: no I/O and no clock. One thread; callbacks run inside the calls below and must
// not call back.
//
// Every subscriber walks its passes in order; a unit is delivered to it as soon as it is sealed and
// stays leased until released. After its last pass a subscriber is expected to ask for the same
// range again, and with no subscriber a whole pass is expected, so reading goes on across the
// boundary between passes. Each unit has a rank, how many units somebody is given before it; a
// resident unit is evicted only for one of lower rank, never while leased, never when pinned. Among
// units awaited by several subscribers the one awaited longest is read first.
class Streamer {
 public:
  using SubscriberId = std::uint64_t;

  struct Read {
    std::uint32_t unit = 0;
    std::size_t slot = 0;
    bool urgent = false;  // a subscriber waits for it
  };

  struct Callbacks {
    // Fill the slot, then call read_done.
    std::function<void(const Read&)> read;
    std::function<void(SubscriberId, std::uint64_t pass, std::uint32_t unit, std::size_t slot)>
        ready;
    // The pass has ended at this unit.
    std::function<void(SubscriberId, std::uint64_t pass, std::uint32_t unit, const Error&)> failed;
  };

  struct Counters {
    std::uint64_t reads = 0;  // of units, started
    std::uint64_t read_errors = 0;
    std::uint64_t units_delivered = 0;
    std::uint64_t units_reused = 0;  // of these, not the first delivery since the unit was read
  };

  // Passes a subscriber may have open at once.
  static constexpr std::size_t kMaxOpenPasses = 64;

  // `pool` is borrowed, all its slots free. `pinned` has one entry a unit; fewer units are pinned
  // than the pool has slots, or all units fit.
  Streamer(SlotPool& pool, std::vector<bool> pinned, Callbacks callbacks);

  // Starts reading ahead before anybody has subscribed.
  void start() { advance(); }

  // Queues one pass. kUsage for a range outside the units, a pass number not above the
  // subscriber's previous one, or too many open passes.
  Status subscribe(SubscriberId subscriber, const ipc::Subscribe& request);

  // Ends a lease; false when there is none (nothing happens then).
  bool release(SubscriberId subscriber, std::uint64_t pass, std::uint32_t unit);

  // The subscriber died: ends its passes and leases.
  void drop(SubscriberId subscriber);

  // A read given to Callbacks::read has ended. On an error the passes that wait for this unit end;
  // a later pass reads it again. Nobody hears of a failed read-ahead: it is repeated when needed.
  void read_done(std::uint32_t unit, const Status& status);

  const Counters& counters() const { return counters_; }

 private:
  enum class State : std::uint8_t { kAbsent, kReading, kResident };

  struct Unit {
    State state = State::kAbsent;
    bool pinned = false;
    bool delivered = false;    // since it was read
    bool read_failed = false;  // the last read: not read ahead again, only on demand
    std::size_t slot = 0;
  };

  struct Range {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
  };

  struct Pass {
    std::uint64_t number = 0;
    std::uint32_t next = 0;  // first unit not delivered yet
    std::uint32_t last = 0;
  };

  struct Subscriber {
    std::deque<Pass> passes;
    std::uint64_t newest_pass = 0;
    Range expected;                   // of the pass after the queued ones
    std::uint64_t waiting_since = 0;  // tick at which the unit now awaited became the next
    std::map<std::pair<std::uint64_t, std::uint32_t>, Lease> leases;  // by (pass, unit)
  };

  // How soon a unit is wanted, over all subscribers.
  struct Need {
    std::uint64_t rank = std::numeric_limits<std::uint64_t>::max();  // unwanted
    std::uint64_t waiting_since = 0;                                 // of rank 0

    bool wanted() const { return rank != std::numeric_limits<std::uint64_t>::max(); }
    bool awaited() const { return rank == 0; }  // the next unit of some subscriber
    bool operator<(const Need& other) const {
      return std::tie(rank, waiting_since) < std::tie(other.rank, other.waiting_since);
    }
  };

  void advance();
  void deliver(SubscriberId id, Subscriber& subscriber);
  void step(Subscriber& subscriber);
  void fail_waiting(std::uint32_t unit, const Error& error);
  std::vector<Need> needs() const;
  std::optional<std::uint32_t> most_wanted(const std::vector<Need>& needs) const;
  std::optional<std::size_t> slot_for(const Need& need, const std::vector<Need>& needs);
  bool start_read();

  SlotPool& pool_;
  Callbacks callbacks_;
  std::vector<Unit> units_;
  std::map<SubscriberId, Subscriber> subscribers_;
  std::size_t reads_in_flight_ = 0;
  std::uint64_t tick_ = 0;
  Counters counters_;
};

}  // namespace k3::trunk
