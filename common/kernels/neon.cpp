// The kernels for NEON, which every AArch64 CPU has: sixteen lanes are four registers.
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "common/kernels/tables.h"

namespace k3::kernels {
namespace {

#include "common/kernels/scales.inc"

// A register from any address.
template <class Vector>
inline Vector load(const void* p) {
  Vector value;
  __builtin_memcpy(&value, p, sizeof value);
  return value;
}

inline void store(float* p, float32x4_t value) { __builtin_memcpy(p, &value, sizeof value); }

struct Lanes {
  float32x4_t a;  // lanes 0-3
  float32x4_t b;  // lanes 4-7
  float32x4_t c;  // lanes 8-11
  float32x4_t d;  // lanes 12-15
};

inline Lanes load_lanes(const float* p) {
  return {load<float32x4_t>(p), load<float32x4_t>(p + 4), load<float32x4_t>(p + 8),
          load<float32x4_t>(p + 12)};
}

inline Lanes load_lanes(const float* p, std::size_t count) {
  float values[16] = {};
  __builtin_memcpy(values, p, count * sizeof(float));
  return load_lanes(values);
}

// vfmaq_f32 as the instruction itself: GCC 12 has the intrinsic read the floating-point mode, takes
// that for a read of memory, and stores every sum before it.
inline float32x4_t multiply_add(float32x4_t w, float32x4_t x, float32x4_t sum) {
  asm("fmla %0.4s, %1.4s, %2.4s" : "+w"(sum) : "w"(w), "w"(x));
  return sum;
}

inline Lanes multiply_add(Lanes w, Lanes x, Lanes sum) {
  return {multiply_add(w.a, x.a, sum.a), multiply_add(w.b, x.b, sum.b),
          multiply_add(w.c, x.c, sum.c), multiply_add(w.d, x.d, sum.d)};
}

// All ones in lanes below `count`, counted from lane `first`.
inline uint32x4_t lanes_below(std::size_t count, std::uint32_t first) {
  static constexpr std::uint32_t kIndex[4] = {0, 1, 2, 3};
  return vcltq_u32(vaddq_u32(load<uint32x4_t>(kIndex), vdupq_n_u32(first)),
                   vdupq_n_u32(static_cast<std::uint32_t>(count)));
}

inline Lanes multiply_add(Lanes w, Lanes x, Lanes sum, std::size_t count) {
  const Lanes all = multiply_add(w, x, sum);
  return {vbslq_f32(lanes_below(count, 0), all.a, sum.a),
          vbslq_f32(lanes_below(count, 4), all.b, sum.b),
          vbslq_f32(lanes_below(count, 8), all.c, sum.c),
          vbslq_f32(lanes_below(count, 12), all.d, sum.d)};
}

inline Lanes broadcast(float value) {
  const float32x4_t all = vdupq_n_f32(value);
  return {all, all, all, all};
}
inline Lanes multiply(Lanes a, Lanes b) {
  return {vmulq_f32(a.a, b.a), vmulq_f32(a.b, b.b), vmulq_f32(a.c, b.c), vmulq_f32(a.d, b.d)};
}
inline Lanes subtract(Lanes a, Lanes b) {
  return {vsubq_f32(a.a, b.a), vsubq_f32(a.b, b.b), vsubq_f32(a.c, b.c), vsubq_f32(a.d, b.d)};
}

inline float reduce(Lanes sum) {
  const float32x4_t four = vaddq_f32(vaddq_f32(sum.a, sum.c), vaddq_f32(sum.b, sum.d));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

inline void store_lanes(Lanes lanes, float* p) {
  store(p, lanes.a);
  store(p + 4, lanes.b);
  store(p + 8, lanes.c);
  store(p + 12, lanes.d);
}

struct F32Row {
  static constexpr std::size_t kBytes = 4;
  static constexpr std::size_t kGroup = 16;
  static constexpr std::size_t kGroupBytes = 64;
  const std::uint8_t* data;

  void enter(std::size_t) {}
  Lanes at(std::size_t i) const {
    const std::uint8_t* const p = data + i * kBytes;
    return {load<float32x4_t>(p), load<float32x4_t>(p + 16), load<float32x4_t>(p + 32),
            load<float32x4_t>(p + 48)};
  }
};

// Eight bf16 values as floats: a zero half goes below each.
inline float32x4_t widen_low(uint16x8_t values) {
  return vreinterpretq_f32_u16(vzip1q_u16(vdupq_n_u16(0), values));
}
inline float32x4_t widen_high(uint16x8_t values) {
  return vreinterpretq_f32_u16(vzip2q_u16(vdupq_n_u16(0), values));
}

struct Bf16Row {
  static constexpr std::size_t kBytes = 2;
  static constexpr std::size_t kGroup = 16;
  static constexpr std::size_t kGroupBytes = 32;
  const std::uint8_t* data;

  void enter(std::size_t) {}
  Lanes at(std::size_t i) const {
    const uint16x8_t first = load<uint16x8_t>(data + i * kBytes);
    const uint16x8_t second = load<uint16x8_t>(data + (i + 8) * kBytes);
    return {widen_low(first), widen_high(first), widen_low(second), widen_high(second)};
  }
};

struct Mxfp4Row {
  static constexpr std::size_t kGroup = 32;
  static constexpr std::size_t kGroupBytes = 16;
  const std::uint8_t* data;
  const std::uint8_t* scales;
  float32x4_t scale;  // the group's

  void enter(std::size_t i) { scale = vdupq_n_f32(kScale.of[scales[i / 32]]); }

  // E2M1 is exact in bf16, whose two bytes are looked up apart; the scale multiplies the floats.
  Lanes at(std::size_t i) const {
    static constexpr std::uint8_t kUpper[16] = {0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,
                                                0x80, 0xBF, 0xBF, 0xBF, 0xC0, 0xC0, 0xC0, 0xC0};
    static constexpr std::uint8_t kLower[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0,
                                                0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0};
    const uint8x16_t bytes = vcombine_u8(load<uint8x8_t>(data + i / 2), vdup_n_u8(0));
    const uint8x16_t codes = vzip1q_u8(vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8(bytes, 4));
    const uint8x16_t upper = vqtbl1q_u8(load<uint8x16_t>(kUpper), codes);
    const uint8x16_t lower = vqtbl1q_u8(load<uint8x16_t>(kLower), codes);
    const uint16x8_t first = vreinterpretq_u16_u8(vzip1q_u8(lower, upper));
    const uint16x8_t second = vreinterpretq_u16_u8(vzip2q_u8(lower, upper));
    return {vmulq_f32(widen_low(first), scale), vmulq_f32(widen_high(first), scale),
            vmulq_f32(widen_low(second), scale), vmulq_f32(widen_high(second), scale)};
  }
};

// The exponents of a coded block, as a byte permutation takes them.
struct CodedExponents {
  explicit CodedExponents(const std::uint8_t* exponents) : of(load<uint8x16_t>(exponents)) {}
  uint8x16_t of;
};

// A row of a coded matrix: its whole groups.
struct CodedRow {
  const std::uint8_t* data;

  // Columns 16 V..16 V + 15 of the group at byte `group`.
  template <std::size_t V>
  Lanes at(std::size_t group, const CodedExponents& exponents) const {
    const std::uint8_t* const codes = data + group;
    const std::uint8_t* const words = codes + kCodedCodeBytes + V / 4 * 64;
    return {quarter<V>(codes, words, exponents), quarter<V>(codes + 16, words + 16, exponents),
            quarter<V>(codes + 32, words + 32, exponents),
            quarter<V>(codes + 48, words + 48, exponents)};
  }

 private:
  // Four lanes of vector V as floats. Everything but the last step is the same for two vectors, and
  // most of it for four: the compiler does it once for them.
  template <std::size_t V>
  static float32x4_t quarter(const std::uint8_t* codes, const std::uint8_t* words,
                             const CodedExponents& exponents) {
    const uint8x16_t exponent = vqtbl1q_u8(exponents.of, codes_of_half<V / 4>(codes));
    const uint8x16_t word = load<uint8x16_t>(words);
    // Byte k of a word has the sign of vector k + 1 of its four and the mantissa of vector k + 2,
    // modulo 4; below, byte k of a lane belongs to vector k.
    static constexpr std::uint8_t kSigns[16] = {3,  0, 1, 2,  7,  4,  5,  6,
                                                11, 8, 9, 10, 15, 12, 13, 14};
    const uint8x16_t signs = vqtbl1q_u8(word, load<uint8x16_t>(kSigns));
    const uint8x16_t mantissas = vreinterpretq_u8_u16(vrev32q_u16(vreinterpretq_u16_u8(word)));
    const uint8x16_t first = vsriq_n_u8(signs, exponent, 1);
    const uint8x16_t second = vsliq_n_u8(mantissas, exponent, 7);
    const uint32x4_t pair =
        vreinterpretq_u32_u8(V % 2 == 0 ? vtrn1q_u8(second, first) : vtrn2q_u8(second, first));
    return vreinterpretq_f32_u32(V % 4 < 2 ? vshlq_n_u32(pair, 16)
                                           : vandq_u32(pair, vdupq_n_u32(0xFFFF0000U)));
  }
  // The codes of vectors 4 kHalf..4 kHalf + 3 of the group, in this order in each lane's bytes.
  template <std::size_t kHalf>
  static uint8x16_t codes_of_half(const std::uint8_t* codes) {
    const uint8x16_t both = load<uint8x16_t>(codes);
    const uint8x16_t even = vandq_u8(both, vdupq_n_u8(15));
    const uint8x16_t odd = vshrq_n_u8(both, 4);
    const uint16x8_t first = vreinterpretq_u16_u8(vtrn1q_u8(even, odd));   // 0, 1, 4, 5
    const uint16x8_t second = vreinterpretq_u16_u8(vtrn2q_u8(even, odd));  // 2, 3, 6, 7
    return vreinterpretq_u8_u16(kHalf == 0 ? vtrn1q_u16(first, second) : vtrn2q_u16(first, second));
  }
};

// At most 16 of the 32 registers are accumulators; a coded row takes 8 more for vectors to come.
constexpr std::size_t kMaxBatch = 4;
constexpr std::size_t coded_rows_at_once(std::size_t batch) { return batch == 1 ? 2 : 1; }
constexpr std::size_t rows_at_once(std::size_t batch) { return 4 / batch; }
constexpr std::size_t kPanelTileRows = 1;
constexpr std::size_t kPanelTileBatch = 4;

#include "common/kernels/products.inc"

constexpr KernelTable kTable = make_table("neon");

}  // namespace

const KernelTable& neon_table() { return kTable; }

}  // namespace k3::kernels
