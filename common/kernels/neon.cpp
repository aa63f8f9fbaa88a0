// The kernels for NEON, which every AArch64 CPU has: sixteen lanes are four registers.
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "common/kernels/tables.h"

namespace k3::kernels {
namespace {

#include "common/kernels/weights.inc"

struct Lanes {
  float32x4_t a;  // lanes 0-3
  float32x4_t b;  // lanes 4-7
  float32x4_t c;  // lanes 8-11
  float32x4_t d;  // lanes 12-15
};

inline Lanes load_lanes(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}

inline Lanes load_lanes(const float* p, std::size_t count) {
  float values[16] = {};
  __builtin_memcpy(values, p, count * sizeof(float));
  return load_lanes(values);
}

inline Lanes multiply_add(Lanes w, Lanes x, Lanes sum) {
  return {vfmaq_f32(sum.a, w.a, x.a), vfmaq_f32(sum.b, w.b, x.b), vfmaq_f32(sum.c, w.c, x.c),
          vfmaq_f32(sum.d, w.d, x.d)};
}

// All ones in lanes below `count`, counted from lane `first`.
inline uint32x4_t lanes_below(std::size_t count, std::uint32_t first) {
  static constexpr std::uint32_t kIndex[4] = {0, 1, 2, 3};
  return vcltq_u32(vaddq_u32(vld1q_u32(kIndex), vdupq_n_u32(first)),
                   vdupq_n_u32(static_cast<std::uint32_t>(count)));
}

inline Lanes multiply_add(Lanes w, Lanes x, Lanes sum, std::size_t count) {
  const Lanes all = multiply_add(w, x, sum);
  return {vbslq_f32(lanes_below(count, 0), all.a, sum.a),
          vbslq_f32(lanes_below(count, 4), all.b, sum.b),
          vbslq_f32(lanes_below(count, 8), all.c, sum.c),
          vbslq_f32(lanes_below(count, 12), all.d, sum.d)};
}

inline float reduce(Lanes sum) {
  const float32x4_t four = vaddq_f32(vaddq_f32(sum.a, sum.c), vaddq_f32(sum.b, sum.d));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

inline void store_lanes(Lanes lanes, float* p) {
  vst1q_f32(p, lanes.a);
  vst1q_f32(p + 4, lanes.b);
  vst1q_f32(p + 8, lanes.c);
  vst1q_f32(p + 12, lanes.d);
}

struct F32Row {
  static constexpr std::size_t kBytes = 4;
  static constexpr std::size_t kGroup = 16;
  const std::uint8_t* data;

  void enter(std::size_t) {}
  Lanes at(std::size_t i) const {
    const std::uint8_t* const p = data + i * kBytes;
    return {load(p), load(p + 16), load(p + 32), load(p + 48)};
  }

 private:
  // By bytes: tensors lie unaligned.
  static float32x4_t load(const std::uint8_t* p) { return vreinterpretq_f32_u8(vld1q_u8(p)); }
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
  const std::uint8_t* data;

  void enter(std::size_t) {}
  Lanes at(std::size_t i) const {
    const uint16x8_t first = vreinterpretq_u16_u8(vld1q_u8(data + i * kBytes));
    const uint16x8_t second = vreinterpretq_u16_u8(vld1q_u8(data + (i + 8) * kBytes));
    return {widen_low(first), widen_high(first), widen_low(second), widen_high(second)};
  }
};

struct Mxfp4Row {
  static constexpr std::size_t kGroup = 32;
  const std::uint8_t* packed;
  const std::uint8_t* scales;
  float32x4_t scale;  // the group's

  void enter(std::size_t i) { scale = vdupq_n_f32(kScale.of[scales[i / 32]]); }

  // E2M1 is exact in bf16, whose two bytes are looked up apart; the scale multiplies the floats.
  Lanes at(std::size_t i) const {
    static constexpr std::uint8_t kUpper[16] = {0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,
                                                0x80, 0xBF, 0xBF, 0xBF, 0xC0, 0xC0, 0xC0, 0xC0};
    static constexpr std::uint8_t kLower[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0,
                                                0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0};
    const uint8x16_t bytes = vcombine_u8(vld1_u8(packed + i / 2), vdup_n_u8(0));
    const uint8x16_t codes = vzip1q_u8(vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8(bytes, 4));
    const uint8x16_t upper = vqtbl1q_u8(vld1q_u8(kUpper), codes);
    const uint8x16_t lower = vqtbl1q_u8(vld1q_u8(kLower), codes);
    const uint16x8_t first = vreinterpretq_u16_u8(vzip1q_u8(lower, upper));
    const uint16x8_t second = vreinterpretq_u16_u8(vzip2q_u8(lower, upper));
    return {vmulq_f32(widen_low(first), scale), vmulq_f32(widen_high(first), scale),
            vmulq_f32(widen_low(second), scale), vmulq_f32(widen_high(second), scale)};
  }
};

// The exponents of a coded block, as a byte permutation takes them.
struct CodedExponents {
  explicit CodedExponents(const std::uint8_t* exponents) : of(vld1q_u8(exponents)) {}
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
  template <std::size_t V>
  static float32x4_t quarter(const std::uint8_t* codes, const std::uint8_t* words,
                             const CodedExponents& exponents) {
    const uint32x4_t bits = vreinterpretq_u32_u8(turned<V % 4>(vld1q_u8(words)));
    const uint32x4_t exponent = exponent_bits<V>(vreinterpretq_u32_u8(vld1q_u8(codes)), exponents);
    return vreinterpretq_f32_u32(vbslq_u32(vdupq_n_u32(kSignAndMantissa), bits, exponent));
  }
  // The code goes to the top byte of each lane, is exchanged there for the exponent, and that goes
  // to its place in a float. The other bytes ask for what no table holds and get zero.
  template <std::size_t V>
  static uint32x4_t exponent_bits(uint32x4_t codes, const CodedExponents& exponents) {
    uint32x4_t top;
    if constexpr (V < 6) {
      top = vshlq_n_u32(codes, 24 - 4 * V);
    } else {
      top = V == 6 ? codes : vshrq_n_u32(codes, 4);
    }
    const uint32x4_t index = vbslq_u32(vdupq_n_u32(0x0F000000), top, vdupq_n_u32(0x00808080));
    return vshrq_n_u32(vreinterpretq_u32_u8(vqtbl1q_u8(exponents.of, vreinterpretq_u8_u32(index))),
                       1);
  }
  // Rotates each lane right by K bytes.
  template <std::size_t K>
  static uint8x16_t turned(uint8x16_t words) {
    if constexpr (K == 0) return words;
    constexpr std::uint32_t kTurn = K == 1 ? 0x00030201 : K == 2 ? 0x01000302 : 0x02010003;
    static constexpr std::uint32_t kOrder[4] = {kTurn, kTurn + 0x04040404, kTurn + 0x08080808,
                                                kTurn + 0x0C0C0C0C};
    return vqtbl1q_u8(words, vreinterpretq_u8_u32(vld1q_u32(kOrder)));
  }
};

// At most 16 of the 32 registers are accumulators.
constexpr std::size_t kMaxBatch = 4;
constexpr std::size_t coded_rows_at_once(std::size_t batch) { return 4 / batch; }
constexpr std::size_t rows_at_once(std::size_t batch) { return 4 / batch; }

#include "common/kernels/products.inc"

constexpr KernelTable kTable = make_table("neon");

}  // namespace

const KernelTable& neon_table() { return kTable; }

}  // namespace k3::kernels
