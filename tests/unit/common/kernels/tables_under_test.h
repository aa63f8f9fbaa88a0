// The kernel tables a test compares, and exact comparison of what they computed.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "common/kernels/select.h"

namespace k3::kernels {

// avx512.cpp over emulated intrinsics.
const KernelTable& emulated_avx512_table();

struct Candidate {
  std::string label;  // the table's name, or "avx512_emulated"
  const KernelTable* table;
};

inline void PrintTo(const Candidate& candidate, std::ostream* out) { *out << candidate.label; }

// Every table this machine can run, the emulated one included on x86-64, the reference last.
inline std::vector<Candidate> all_tables() {
  std::vector<Candidate> candidates;
#if defined(__x86_64__)
  candidates.push_back({"avx512_emulated", &emulated_avx512_table()});
#endif
  for (const KernelTable* table : supported_tables()) candidates.push_back({table->name, table});
  return candidates;
}

// All but the reference: those that are compared with it.
inline std::vector<Candidate> fast_tables() {
  std::vector<Candidate> candidates = all_tables();
  candidates.pop_back();
  return candidates;
}

class EveryTable : public testing::TestWithParam<Candidate> {
 protected:
  const KernelTable& table() const { return *GetParam().table; }
};

inline std::string candidate_name(const testing::TestParamInfo<Candidate>& info) {
  return info.param.label;
}

// Equal bits; any NaN equals any other (x86 does not define which operand's payload survives).
inline bool same_bits(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

inline testing::AssertionResult same_bits(const std::vector<float>& got,
                                          const std::vector<float>& want) {
  if (got.size() != want.size()) {
    return testing::AssertionFailure() << got.size() << " values, expected " << want.size();
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!same_bits(got[i], want[i])) {
      return testing::AssertionFailure()
             << std::hexfloat << "value " << i << " is " << got[i] << ", expected " << want[i];
    }
  }
  return testing::AssertionSuccess();
}

// Normally distributed values, the same in every run.
inline std::vector<float> random_floats(std::size_t n, std::uint32_t seed, float spread = 1.0F) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

inline std::vector<std::uint8_t> random_bytes(std::size_t n, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<std::uint8_t> values(n);
  for (std::uint8_t& value : values) value = static_cast<std::uint8_t>(generator());
  return values;
}

}  // namespace k3::kernels
