#include "common/arena/slot_pool.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "common/base/check.h"

namespace k3 {
namespace {

std::string_view name_of(SlotState state) {
  switch (state) {
    case SlotState::kFree:
      return "free";
    case SlotState::kFilling:
      return "filling";
    case SlotState::kSealed:
      return "sealed";
  }
  return "invalid";
}

void check_index(std::size_t slot, std::size_t slots) {
  K3_CHECK(slot < slots, fmt::format("slot {} of {}", slot, slots));
}

}  // namespace

SlotPool::SlotPool(std::span<std::byte> arena, std::size_t slots, std::size_t slot_bytes)
    : arena_(arena), slot_bytes_(slot_bytes) {
  K3_CHECK(slot_bytes > 0 && slots <= arena.size() / slot_bytes,
           fmt::format("{} slots of {} bytes in an arena of {}", slots, slot_bytes, arena.size()));
  entries_.resize(slots);
  free_.reserve(slots);
  for (std::size_t slot = slots; slot > 0; --slot) free_.push_back(slot - 1);
}

std::optional<std::size_t> SlotPool::begin_fill() {
  if (free_.empty()) return std::nullopt;
  const std::size_t slot = free_.back();
  free_.pop_back();
  entries_[slot].state = SlotState::kFilling;
  return slot;
}

void SlotPool::seal(std::size_t slot) {
  check_index(slot, slots());
  Entry& entry = entries_[slot];
  K3_CHECK(entry.state == SlotState::kFilling,
           fmt::format("sealing slot {}, which is {}", slot, name_of(entry.state)));
  entry.state = SlotState::kSealed;
}

void SlotPool::free(std::size_t slot) {
  check_index(slot, slots());
  Entry& entry = entries_[slot];
  K3_CHECK(entry.state != SlotState::kFree, fmt::format("freeing slot {}, which is free", slot));
  K3_CHECK(entry.leases == 0, fmt::format("freeing slot {} under {} leases", slot, entry.leases));
  entry.state = SlotState::kFree;
  free_.push_back(slot);
}

std::span<std::byte> SlotPool::bytes(std::size_t slot) const {
  check_index(slot, slots());
  return arena_.subspan(slot * slot_bytes_, slot_bytes_);
}

Lease::Lease(SlotPool& pool, std::size_t slot) : pool_(&pool), slot_(slot) {
  check_index(slot, pool.slots());
  SlotPool::Entry& entry = pool.entries_[slot];
  K3_CHECK(entry.state == SlotState::kSealed,
           fmt::format("leasing slot {}, which is {}", slot, name_of(entry.state)));
  ++entry.leases;
}

Lease::Lease(Lease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), slot_(other.slot_) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = std::exchange(other.pool_, nullptr);
    slot_ = other.slot_;
  }
  return *this;
}

Lease::~Lease() { release(); }

void Lease::release() {
  if (pool_ == nullptr) return;
  --pool_->entries_[slot_].leases;
  pool_ = nullptr;
}

}  // namespace k3
