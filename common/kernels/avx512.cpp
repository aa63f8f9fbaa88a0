// The kernels for AVX-512 (F, BW, VL, DQ): sixteen lanes are one register.
//
// Nothing here may have external linkage but the table: an inline function compiled for AVX-512
// could otherwise replace the portable one at link time.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "common/kernels/tables.h"

namespace k3::kernels {
namespace {

#include "common/kernels/lanes.inc"

struct Lanes {
  __m512 all;
};

inline __mmask16 lanes_below(std::size_t count) {
  return static_cast<__mmask16>((1U << count) - 1U);
}

inline Lanes load_lanes(const float* p) { return {_mm512_loadu_ps(p)}; }

inline Lanes load_lanes(const float* p, std::size_t count) {
  return {_mm512_maskz_loadu_ps(lanes_below(count), p)};
}

inline Lanes multiply_add(Lanes w, Lanes x, Lanes sum) {
  return {_mm512_fmadd_ps(w.all, x.all, sum.all)};
}

inline Lanes multiply_add(Lanes w, Lanes x, Lanes sum, std::size_t count) {
  return {_mm512_mask3_fmadd_ps(w.all, x.all, sum.all, lanes_below(count))};
}

inline Lanes broadcast(float value) { return {_mm512_set1_ps(value)}; }
inline Lanes multiply(Lanes a, Lanes b) { return {_mm512_mul_ps(a.all, b.all)}; }
inline Lanes subtract(Lanes a, Lanes b) { return {_mm512_sub_ps(a.all, b.all)}; }

inline float reduce(Lanes sum) {
  float lane[16];
  _mm512_storeu_ps(lane, sum.all);
  return reduce_quarters(_mm_loadu_ps(lane), _mm_loadu_ps(lane + 4), _mm_loadu_ps(lane + 8),
                         _mm_loadu_ps(lane + 12));
}

inline void store_lanes(Lanes lanes, float* p) { _mm512_storeu_ps(p, lanes.all); }

struct F32Row {
  static constexpr std::size_t kBytes = 4;
  static constexpr std::size_t kGroup = 16;
  static constexpr std::size_t kGroupBytes = 64;
  const std::uint8_t* data;

  void enter(std::size_t) {}
  Lanes at(std::size_t i) const { return {_mm512_loadu_ps(data + i * kBytes)}; }
};

struct Bf16Row {
  static constexpr std::size_t kBytes = 2;
  static constexpr std::size_t kGroup = 16;
  static constexpr std::size_t kGroupBytes = 32;
  const std::uint8_t* data;

  void enter(std::size_t) {}
  Lanes at(std::size_t i) const {
    const auto* const p = reinterpret_cast<const __m256i*>(data + i * kBytes);
    const __m512i values = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(values, 16))};
  }
};

struct Mxfp4Row {
  static constexpr std::size_t kGroup = 32;
  static constexpr std::size_t kGroupBytes = 16;
  const std::uint8_t* data;
  const std::uint8_t* scales;
  __m512 values;  // the sixteen of E2M1 times the group's scale

  void enter(std::size_t i) {
    static constexpr float kE2m1[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                        -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
    values = _mm512_mul_ps(_mm512_loadu_ps(kE2m1), _mm512_set1_ps(kScale.of[scales[i / 32]]));
  }
  // The permutation looks at the low four bits of an index, so the other nibble of a byte may stay.
  Lanes at(std::size_t i) const {
    const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(data + i / 2));
    const __m128i codes = _mm_unpacklo_epi8(low, _mm_srli_epi16(low, 4));
    return {_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(codes), values)};
  }
};

// The exponents of a coded block, as bits of a float.
struct CodedExponents {
  explicit CodedExponents(const std::uint8_t* exponents)
      : of(_mm512_slli_epi32(
            _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(exponents))),
            23)) {}
  __m512i of;
};

// A row of a coded matrix: its whole groups.
struct CodedRow {
  const std::uint8_t* data;

  // Columns 16 V..16 V + 15 of the group at byte `group`.
  template <std::size_t V>
  Lanes at(std::size_t group, const CodedExponents& exponents) const {
    const __m512i codes = _mm512_loadu_si512(data + group);
    const __m512i words = _mm512_loadu_si512(data + group + kCodedCodeBytes + V / 4 * 64);
    // The permutation looks at the low four bits of an index only.
    const __m512i exponent =
        _mm512_permutexvar_epi32(_mm512_srli_epi32(codes, 4 * V), exponents.of);
    const __m512i turned = V % 4 == 0 ? words : _mm512_ror_epi32(words, 8 * (V % 4));
    constexpr int kSelectOr = 0xEA;  // (turned & mask) | exponent
    return {_mm512_castsi512_ps(_mm512_ternarylogic_epi32(
        turned, _mm512_set1_epi32(static_cast<int>(kSignAndMantissa)), exponent, kSelectOr))};
  }
};

// At most 16 of the 32 registers are accumulators where weights are decoded between them, 24 where
// they come decoded.
constexpr std::size_t kMaxBatch = 4;
constexpr std::size_t coded_rows_at_once(std::size_t batch) { return batch == 1 ? 4 : 2; }
constexpr std::size_t rows_at_once(std::size_t batch) { return batch == 1 ? 8 : 4; }
constexpr std::size_t kPanelTileRows = 6;
constexpr std::size_t kPanelTileBatch = 4;

#include "common/kernels/products.inc"

constexpr KernelTable kTable = make_table("avx512");

}  // namespace

const KernelTable& avx512_table() { return kTable; }

}  // namespace k3::kernels
