// Deterministic random tensor values, any range of which can be made on its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tools/k3/checkpoint_plan.h"

namespace k3::cli {

// The values of one tensor follow from (seed, name, element) alone: not from its shard or place,
// nor from the machine. One thread.
class RandomTensor {
 public:
  // `tensor` is borrowed.
  RandomTensor(const PlannedTensor& tensor, std::uint64_t seed);

  // The tensor's bytes from `first_byte`, a multiple of kStep, on.
  void fill(std::uint64_t first_byte, std::span<std::byte> out) const;

  // Bytes made from whole counters, for every type.
  static constexpr std::uint64_t kStep = 16;

 private:
  static constexpr std::size_t kTableSize = 4096;

  template <class Value>
  void fill_values(const std::array<Value, kTableSize>& table, std::uint64_t first,
                   std::span<std::byte> out) const;
  void fill_bytes(std::uint64_t first, std::span<std::byte> out) const;

  const PlannedTensor& tensor_;
  std::uint64_t key_;
  // Normal values of the tensor's centre and deviation; one of the two is filled.
  std::array<float, kTableSize> f32_table_;
  std::array<std::uint16_t, kTableSize> bf16_table_;
};

}  // namespace k3::cli
