// A counter hashed into table indices; see random_weights.h.
#include "tools/k3/random_weights.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "common/base/hash.h"

namespace k3::cli {
namespace {

// The finaliser of splitmix64: every input bit reaches every output bit.
std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t random_word(std::uint64_t key, std::uint64_t counter) {
  return mix(key + counter * 0x9e3779b97f4a7c15u);
}

// A draw of nearly normal distribution, deviation 1: the sum of twelve uniform numbers. Integers
// until the last step, so that no libm has a say in it.
float normal_draw(std::uint64_t number) {
  constexpr std::uint64_t kKey = 1;
  std::int64_t sum = 0;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const std::uint64_t word = random_word(kKey, number * 3 + i);
    for (int shift = 0; shift < 64; shift += 16) sum += (word >> shift) & 0xffff;
  }
  return static_cast<float>(2 * sum - 12 * 65535) / 131072.0f;
}

// Round to nearest even.
std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace

RandomTensor::RandomTensor(const PlannedTensor& tensor, std::uint64_t seed)
    : tensor_(tensor), key_(mix(seed + 1) ^ checksum(std::as_bytes(std::span(tensor.name)))) {
  if (tensor.dtype == DType::kU8) return;
  for (std::size_t i = 0; i < kTableSize; ++i) {
    // Every draw with both signs: the mean is the centre exactly.
    const float draw = i % 2 == 0 ? normal_draw(i / 2) : -normal_draw(i / 2);
    const float value = tensor.filling.centre + tensor.filling.deviation * draw;
    if (tensor.dtype == DType::kF32) {
      f32_table_[i] = value;
    } else {
      bf16_table_[i] = to_bf16(value);
    }
  }
}

void RandomTensor::fill(std::uint64_t first_byte, std::span<std::byte> out) const {
  switch (tensor_.dtype) {
    case DType::kF32:
      return fill_values(f32_table_, first_byte, out);
    case DType::kBf16:
      return fill_values(bf16_table_, first_byte, out);
    default:
      return fill_bytes(first_byte, out);
  }
}

template <class Value>
void RandomTensor::fill_values(const std::array<Value, kTableSize>& table, std::uint64_t first,
                               std::span<std::byte> out) const {
  constexpr std::uint64_t kPerWord = 4;
  const std::uint64_t element = first / sizeof(Value);
  const std::uint64_t live =
      tensor_.filling.values > element ? tensor_.filling.values - element : 0;
  const std::uint64_t count = std::min<std::uint64_t>(out.size() / sizeof(Value), live);
  for (std::uint64_t i = 0; i < count; i += kPerWord) {
    const std::uint64_t word = random_word(key_, (element + i) / kPerWord);
    std::array<Value, kPerWord> values;
    for (std::uint64_t j = 0; j < kPerWord; ++j) values[j] = table[(word >> (16 * j)) % kTableSize];
    std::memcpy(out.data() + i * sizeof(Value), values.data(),
                std::min(kPerWord, count - i) * sizeof(Value));
  }
  const std::span<std::byte> rest = out.subspan(count * sizeof(Value));
  std::fill(rest.begin(), rest.end(), std::byte{0});
}

void RandomTensor::fill_bytes(std::uint64_t first, std::span<std::byte> out) const {
  constexpr std::uint64_t kLowBits = 0x0101010101010101u;
  const std::uint64_t top = kLowBits * tensor_.filling.scale;
  for (std::uint64_t i = 0; i < out.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = random_word(key_, (first + i) / sizeof(std::uint64_t));
    if (tensor_.filling.scale != 0) word = top - (word & kLowBits);
    std::memcpy(out.data() + i, &word, std::min(sizeof word, out.size() - i));
  }
}

}  // namespace k3::cli
