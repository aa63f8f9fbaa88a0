// Who may touch which slot of an arena: Free, Filling, Sealed, and leases on sealed slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace k3 {

enum class SlotState { kFree, kFilling, kSealed };

// Equal slots over one arena. A slot's bytes change only while it is Filling; a Sealed slot is
// immutable, and a leased one can be neither freed nor filled (K3_CHECK). One thread.
class SlotPool {
 public:
  // `arena` is borrowed and must hold slots * slot_bytes bytes.
  SlotPool(std::span<std::byte> arena, std::size_t slots, std::size_t slot_bytes);

  std::size_t slots() const { return entries_.size(); }
  std::size_t slot_bytes() const { return slot_bytes_; }
  SlotState state(std::size_t slot) const { return entries_[slot].state; }
  bool leased(std::size_t slot) const { return entries_[slot].leases > 0; }

  // A free slot, now Filling; nothing when none is free.
  std::optional<std::size_t> begin_fill();
  void seal(std::size_t slot);  // Filling -> Sealed
  void free(std::size_t slot);  // Filling or unleased Sealed -> Free

  std::span<std::byte> bytes(std::size_t slot) const;
  std::uint64_t offset(std::size_t slot) const { return slot * slot_bytes_; }

 private:
  friend class Lease;
  struct Entry {
    SlotState state = SlotState::kFree;
    std::uint32_t leases = 0;
  };
  std::span<std::byte> arena_;
  std::size_t slot_bytes_;
  std::vector<Entry> entries_;
  std::vector<std::size_t> free_;
};

// Keeps one Sealed slot from being evicted for as long as it lives. Move-only; the pool's thread;
// must not outlive the pool.
class Lease {
 public:
  Lease(SlotPool& pool, std::size_t slot);
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();
  std::size_t slot() const { return slot_; }

 private:
  void release();
  SlotPool* pool_ = nullptr;
  std::size_t slot_ = 0;
};

}  // namespace k3
