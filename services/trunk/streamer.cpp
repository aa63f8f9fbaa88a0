#include "services/trunk/streamer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace k3::trunk {
namespace {

// Reads ahead in flight: one that keeps the disk busy and one queued behind it. More would only
// delay a unit somebody begins to wait for.
constexpr std::size_t kReadAheadInFlight = 2;

// Ranks from here on belong to passes that are expected but not asked for.
constexpr std::uint64_t kExpectedRank = std::uint64_t{1} << 32;

}  // namespace

Streamer::Streamer(SlotPool& pool, std::vector<bool> pinned, Callbacks callbacks)
    : pool_(pool), callbacks_(std::move(callbacks)), units_(pinned.size()) {
  K3_CHECK(!pinned.empty(), "a trunk without units");
  for (std::size_t i = 0; i < pinned.size(); ++i) units_[i].pinned = pinned[i];
}

Status Streamer::subscribe(SubscriberId subscriber, const ipc::Subscribe& request) {
  if (request.first_unit > request.last_unit || request.last_unit >= units_.size()) {
    return fail(ErrorCode::kUsage, "pass {}: units {}..{} asked for, the trunk has units 0..{}",
                request.pass, request.first_unit, request.last_unit, units_.size() - 1);
  }
  const auto known = subscribers_.find(subscriber);
  if (known != subscribers_.end()) {
    if (request.pass <= known->second.newest_pass) {
      return fail(ErrorCode::kUsage, "pass {}: expected a number above the previous pass, {}",
                  request.pass, known->second.newest_pass);
    }
    if (known->second.passes.size() >= kMaxOpenPasses) {
      return fail(ErrorCode::kUsage, "pass {}: {} passes are open already, the most allowed",
                  request.pass, kMaxOpenPasses);
    }
  }
  Subscriber& entry = subscribers_[subscriber];
  if (entry.passes.empty()) entry.waiting_since = ++tick_;
  entry.passes.push_back({request.pass, request.first_unit, request.last_unit});
  entry.newest_pass = request.pass;
  entry.expected = {request.first_unit, request.last_unit};
  advance();
  return {};
}

bool Streamer::release(SubscriberId subscriber, std::uint64_t pass, std::uint32_t unit) {
  const auto found = subscribers_.find(subscriber);
  if (found == subscribers_.end() || found->second.leases.erase({pass, unit}) == 0) return false;
  advance();
  return true;
}

void Streamer::drop(SubscriberId subscriber) {
  if (subscribers_.erase(subscriber) > 0) advance();
}

void Streamer::read_done(std::uint32_t unit, const Status& status) {
  Unit& entry = units_.at(unit);
  K3_CHECK(entry.state == State::kReading, fmt::format("unit {} was not being read", unit));
  --reads_in_flight_;
  entry.read_failed = !status;
  if (status) {
    entry.state = State::kResident;
    entry.delivered = false;
    pool_.seal(entry.slot);
  } else {
    entry.state = State::kAbsent;
    pool_.free(entry.slot);
    ++counters_.read_errors;
    fail_waiting(unit, status.error());
  }
  advance();
}

// Delivers what is ready and starts every read that may start.
void Streamer::advance() {
  for (auto& [id, subscriber] : subscribers_) deliver(id, subscriber);
  while (start_read()) {
  }
}

void Streamer::deliver(SubscriberId id, Subscriber& subscriber) {
  while (!subscriber.passes.empty()) {
    const Pass pass = subscriber.passes.front();
    Unit& unit = units_[pass.next];
    if (unit.state != State::kResident) return;
    subscriber.leases.emplace(std::pair{pass.number, pass.next}, Lease(pool_, unit.slot));
    ++counters_.units_delivered;
    if (std::exchange(unit.delivered, true)) ++counters_.units_reused;
    callbacks_.ready(id, pass.number, pass.next, unit.slot);
    step(subscriber);
  }
}

// Moves on to the next unit of the passes.
void Streamer::step(Subscriber& subscriber) {
  Pass& pass = subscriber.passes.front();
  if (pass.next == pass.last) {
    subscriber.passes.pop_front();
  } else {
    ++pass.next;
  }
  subscriber.waiting_since = ++tick_;
}

void Streamer::fail_waiting(std::uint32_t unit, const Error& error) {
  for (auto& [id, subscriber] : subscribers_) {
    if (subscriber.passes.empty() || subscriber.passes.front().next != unit) continue;
    const std::uint64_t pass = subscriber.passes.front().number;
    subscriber.passes.pop_front();
    subscriber.waiting_since = ++tick_;
    callbacks_.failed(id, pass, unit, error);
  }
}

std::vector<Streamer::Need> Streamer::needs() const {
  std::vector<Need> needs(units_.size());
  const auto want = [&](std::uint32_t unit, Need need) {
    needs[unit] = std::min(needs[unit], need);
  };
  for (const auto& [id, subscriber] : subscribers_) {
    std::uint64_t rank = 0;
    for (const Pass& pass : subscriber.passes) {
      for (std::uint32_t unit = pass.next; unit <= pass.last; ++unit, ++rank) {
        want(unit, {rank, rank == 0 ? subscriber.waiting_since : 0});
      }
    }
    rank = kExpectedRank;
    for (std::uint32_t unit = subscriber.expected.first; unit <= subscriber.expected.last; ++unit) {
      want(unit, {rank++, 0});
    }
  }
  if (subscribers_.empty()) {
    for (std::uint32_t unit = 0; unit < units_.size(); ++unit)
      want(unit, {kExpectedRank + unit, 0});
  }
  return needs;
}

// The absent unit to read next, if any may be read now.
std::optional<std::uint32_t> Streamer::most_wanted(const std::vector<Need>& needs) const {
  const bool may_read_ahead = reads_in_flight_ < kReadAheadInFlight;
  std::optional<std::uint32_t> best;
  for (std::uint32_t unit = 0; unit < units_.size(); ++unit) {
    const Need& need = needs[unit];
    if (units_[unit].state != State::kAbsent || !need.wanted()) continue;
    if (!need.awaited() && (!may_read_ahead || units_[unit].read_failed)) continue;
    if (!best || need < needs[*best]) best = unit;
  }
  return best;
}

// A slot being filled: a free one, or that of the resident unit wanted last, if later than `need`.
std::optional<std::size_t> Streamer::slot_for(const Need& need, const std::vector<Need>& needs) {
  if (const auto slot = pool_.begin_fill()) return slot;
  std::optional<std::uint32_t> victim;
  for (std::uint32_t unit = 0; unit < units_.size(); ++unit) {
    const Unit& entry = units_[unit];
    if (entry.state != State::kResident || entry.pinned || pool_.leased(entry.slot)) continue;
    if (needs[unit].rank <= need.rank) continue;
    if (!victim || needs[unit].rank > needs[*victim].rank) victim = unit;
  }
  if (!victim) return std::nullopt;
  units_[*victim].state = State::kAbsent;
  pool_.free(units_[*victim].slot);
  return pool_.begin_fill();
}

// Starts the read most wanted; false when there is none or no slot for it.
bool Streamer::start_read() {
  const std::vector<Need> wanted = needs();
  const std::optional<std::uint32_t> unit = most_wanted(wanted);
  if (!unit) return false;
  const std::optional<std::size_t> slot = slot_for(wanted[*unit], wanted);
  if (!slot) return false;
  units_[*unit].state = State::kReading;
  units_[*unit].slot = *slot;
  ++reads_in_flight_;
  ++counters_.reads;
  callbacks_.read({*unit, *slot, wanted[*unit].awaited()});
  return true;
}

}  // namespace k3::trunk
