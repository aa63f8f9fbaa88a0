// The kernels for AVX2 with FMA: sixteen lanes are two registers.
//
// Nothing here may have external linkage but the table: an inline function compiled for AVX2 could
// otherwise replace the portable one at link time.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "common/kernels/tables.h"

namespace k3::kernels {
namespace {

#include "common/kernels/lanes.inc"

struct Lanes {
  __m256 low;   // lanes 0-7
  __m256 high;  // lanes 8-15
};

inline Lanes load_lanes(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }

// All ones in lanes below `count`, counted from lane `first`.
inline __m256i lanes_below(std::size_t count, int first) {
  const __m256i index =
      _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), index);
}

inline Lanes load_lanes(const float* p, std::size_t count) {
  float values[16] = {};
  __builtin_memcpy(values, p, count * sizeof(float));
  return load_lanes(values);
}

inline Lanes multiply_add(Lanes w, Lanes x, Lanes sum) {
  return {_mm256_fmadd_ps(w.low, x.low, sum.low), _mm256_fmadd_ps(w.high, x.high, sum.high)};
}

inline Lanes multiply_add(Lanes w, Lanes x, Lanes sum, std::size_t count) {
  const Lanes all = multiply_add(w, x, sum);
  return {_mm256_blendv_ps(sum.low, all.low, _mm256_castsi256_ps(lanes_below(count, 0))),
          _mm256_blendv_ps(sum.high, all.high, _mm256_castsi256_ps(lanes_below(count, 8)))};
}

inline Lanes broadcast(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
inline Lanes multiply(Lanes a, Lanes b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Lanes subtract(Lanes a, Lanes b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}

inline float reduce(Lanes sum) {
  return reduce_quarters(_mm256_castps256_ps128(sum.low), _mm256_extractf128_ps(sum.low, 1),
                         _mm256_castps256_ps128(sum.high), _mm256_extractf128_ps(sum.high, 1));
}

inline void store_lanes(Lanes lanes, float* p) {
  _mm256_storeu_ps(p, lanes.low);
  _mm256_storeu_ps(p + 8, lanes.high);
}

struct F32Row {
  static constexpr std::size_t kBytes = 4;
  static constexpr std::size_t kGroup = 16;
  static constexpr std::size_t kGroupBytes = 64;
  const std::uint8_t* data;

  void enter(std::size_t) {}
  Lanes at(std::size_t i) const {
    return load_lanes(reinterpret_cast<const float*>(data + i * kBytes));
  }
};

struct Bf16Row {
  static constexpr std::size_t kBytes = 2;
  static constexpr std::size_t kGroup = 16;
  static constexpr std::size_t kGroupBytes = 32;
  const std::uint8_t* data;

  void enter(std::size_t) {}
  Lanes at(std::size_t i) const {
    return {widen(data + i * kBytes), widen(data + (i + 8) * kBytes)};
  }

 private:
  static __m256 widen(const std::uint8_t* p) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(values), 16));
  }
};

struct Mxfp4Row {
  static constexpr std::size_t kGroup = 32;
  static constexpr std::size_t kGroupBytes = 16;
  const std::uint8_t* data;
  const std::uint8_t* scales;
  __m256 magnitudes;  // the eight of E2M1 times the group's scale

  void enter(std::size_t i) {
    magnitudes = _mm256_mul_ps(_mm256_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F),
                               _mm256_set1_ps(kScale.of[scales[i / 32]]));
  }
  Lanes at(std::size_t i) const { return {decode(data + i / 2), decode(data + i / 2 + 4)}; }

 private:
  // Nibble j of four little-endian bytes is column j: three bits choose the magnitude (the
  // permutation ignores the others), the fourth is the sign.
  __m256 decode(const std::uint8_t* p) const {
    int nibbles;
    __builtin_memcpy(&nibbles, p, sizeof nibbles);
    const __m256i all = _mm256_set1_epi32(nibbles);
    const __m256i code = _mm256_srlv_epi32(all, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    const __m256i top = _mm256_sllv_epi32(all, _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0));
    const __m256 sign = _mm256_and_ps(_mm256_castsi256_ps(top), _mm256_set1_ps(-0.0F));
    return _mm256_or_ps(_mm256_permutevar8x32_ps(magnitudes, code), sign);
  }
};

// The exponents of a coded block, twice, as a byte permutation takes them.
struct CodedExponents {
  explicit CodedExponents(const std::uint8_t* exponents)
      : of(_mm256_broadcastsi128_si256(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(exponents)))) {}
  __m256i of;
};

// A row of a coded matrix: its whole groups.
struct CodedRow {
  const std::uint8_t* data;

  // Columns 16 V..16 V + 15 of the group at byte `group`.
  template <std::size_t V>
  Lanes at(std::size_t group, const CodedExponents& exponents) const {
    return {half<V>(group, 0, exponents), half<V>(group, 32, exponents)};
  }

 private:
  template <std::size_t V>
  __m256 half(std::size_t group, std::size_t lanes, const CodedExponents& exponents) const {
    const auto* const codes = reinterpret_cast<const __m256i*>(data + group + lanes);
    const auto* const words =
        reinterpret_cast<const __m256i*>(data + group + kCodedCodeBytes + V / 4 * 64 + lanes);
    const __m256i bits = _mm256_and_si256(turned<V % 4>(_mm256_loadu_si256(words)),
                                          _mm256_set1_epi32(static_cast<int>(kSignAndMantissa)));
    return _mm256_castsi256_ps(
        _mm256_or_si256(bits, exponent_bits<V>(_mm256_loadu_si256(codes), exponents)));
  }
  // The code goes to the top byte of each lane, is exchanged there for the exponent, and that goes
  // to its place in a float. The other bytes ask for nothing (their top bit is set) and get zero.
  template <std::size_t V>
  static __m256i exponent_bits(__m256i codes, const CodedExponents& exponents) {
    const __m256i top = V < 7 ? _mm256_slli_epi32(codes, 24 - 4 * V < 32 ? 24 - 4 * V : 0)
                              : _mm256_srli_epi32(codes, 4);
    const __m256i index = _mm256_or_si256(_mm256_and_si256(top, _mm256_set1_epi32(0x0F000000)),
                                          _mm256_set1_epi32(0x00808080));
    return _mm256_srli_epi32(_mm256_shuffle_epi8(exponents.of, index), 1);
  }
  // Rotates each lane right by K bytes.
  template <std::size_t K>
  static __m256i turned(__m256i words) {
    if constexpr (K == 0) return words;
    constexpr int kTurn = K == 1 ? 0x00030201 : K == 2 ? 0x01000302 : 0x02010003;
    const __m256i order = _mm256_add_epi32(
        _mm256_set1_epi32(kTurn), _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C, 0,
                                                    0x04040404, 0x08080808, 0x0C0C0C0C));
    return _mm256_shuffle_epi8(words, order);
  }
};

// At most 12 of the 16 registers are accumulators.
constexpr std::size_t kMaxBatch = 3;
constexpr std::size_t coded_rows_at_once(std::size_t batch) { return batch == 1 ? 4 : 2; }
constexpr std::size_t rows_at_once(std::size_t batch) { return batch == 1 ? 4 : 2; }
constexpr std::size_t kPanelTileRows = 2;
constexpr std::size_t kPanelTileBatch = 3;

#include "common/kernels/products.inc"

constexpr KernelTable kTable = make_table("avx2");

}  // namespace

const KernelTable& avx2_table() { return kTable; }

}  // namespace k3::kernels
