// The kernels in plain scalar C++: the bits every other table must reproduce.
#include <cstddef>
#include <cstdint>

#include "common/kernels/tables.h"

namespace k3::kernels {
namespace {

// The lane contract (kernel_table.h). weight(i) is element i of the row.
template <class Weight>
float lane_dot(const Weight& weight, const float* x, std::size_t n) {
  float lane[16] = {};
  for (std::size_t i = 0; i < n; ++i) {
    lane[i % 16] = __builtin_fmaf(weight(i), x[i], lane[i % 16]);
  }
  for (std::size_t width = 8; width > 0; width /= 2) {
    for (std::size_t l = 0; l < width; ++l) lane[l] += lane[l + width];
  }
  return lane[0];
}

float dot(const float* a, const float* b, std::size_t n) {
  return lane_dot([a](std::size_t i) { return a[i]; }, b, n);
}

#include "common/kernels/elementwise.inc"

// weight(r, i) is element i of row r.
template <class Weight>
void matmul(const Weight& weight, std::size_t rows, std::size_t cols, const float* x,
            std::size_t x_stride, std::size_t batch, float* y, std::size_t y_stride) {
  for (std::size_t b = 0; b < batch; ++b) {
    for (std::size_t r = 0; r < rows; ++r) {
      y[b * y_stride + r] =
          lane_dot([&weight, r](std::size_t i) { return weight(r, i); }, x + b * x_stride, cols);
    }
  }
}

void matmul_f32(const std::uint8_t* w, std::size_t rows, std::size_t cols, const float* x,
                std::size_t x_stride, std::size_t batch, float* y, std::size_t y_stride) {
  const auto weight = [w, cols](std::size_t r, std::size_t i) {
    float value;
    __builtin_memcpy(&value, w + (r * cols + i) * sizeof value, sizeof value);
    return value;
  };
  matmul(weight, rows, cols, x, x_stride, batch, y, y_stride);
}

void matmul_bf16(const std::uint8_t* w, std::size_t rows, std::size_t cols, const float* x,
                 std::size_t x_stride, std::size_t batch, float* y, std::size_t y_stride) {
  const auto weight = [w, cols](std::size_t r, std::size_t i) { return bf16_at(w, r * cols + i); };
  matmul(weight, rows, cols, x, x_stride, batch, y, y_stride);
}

// 2^(scale - 127), or 0 for 255.
float scale_of_e8m0(std::uint8_t scale) {
  if (scale == 255) return 0.0F;
  if (scale == 0) return 0x1p-127F;  // subnormal: no exponent field says it
  return float_of_bits(static_cast<std::uint32_t>(scale) << 23);
}

void matmul_mxfp4(const std::uint8_t* packed, const std::uint8_t* scales, std::size_t rows,
                  std::size_t cols, const float* x, std::size_t x_stride, std::size_t batch,
                  float* y, std::size_t y_stride) {
  constexpr float kE2m1[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                               -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
  const auto weight = [&](std::size_t r, std::size_t i) {
    const std::size_t position = r * cols + i;
    const unsigned nibble = (packed[position / 2] >> (position % 2 * 4)) & 15U;
    return kE2m1[nibble] * scale_of_e8m0(scales[position / 32]);
  };
  matmul(weight, rows, cols, x, x_stride, batch, y, y_stride);
}

std::uint32_t word_at(const std::uint8_t* at) {
  std::uint32_t word;
  __builtin_memcpy(&word, at, sizeof word);
  return word;
}

// Column i of a row of whole groups, escapes as if their exponent were 0.
float coded_at(const CodedBf16& w, const std::uint8_t* row, std::size_t i) {
  const std::uint8_t* const group = row + i / kCodedGroup * kCodedGroupBytes;
  const std::size_t vector = i % kCodedGroup / 16;
  const std::size_t lane = i % 16;
  const std::uint32_t code = (word_at(group + 4 * lane) >> (4 * vector)) & 15U;
  const std::uint32_t word = word_at(group + kCodedCodeBytes + vector / 4 * 64 + 4 * lane);
  const unsigned turn = 8 * (vector % 4);
  const std::uint32_t turned = turn == 0 ? word : (word >> turn) | (word << (32 - turn));
  return float_of_bits((turned & 0x807F0000U) | std::uint32_t{w.exponents[code]} << 23);
}

void matmul_coded(const CodedBf16& w, std::size_t first, std::size_t rows, std::size_t cols,
                  const float* x, std::size_t x_stride, std::size_t batch, float* y,
                  std::size_t y_stride) {
  const std::size_t coded = cols / kCodedGroup * kCodedGroup;
  const auto weight = [&](std::size_t r, std::size_t i) {
    const std::uint8_t* const row = w.rows + (first + r) * w.row_bytes;
    if (i >= coded) return bf16_at(row + coded / kCodedGroup * kCodedGroupBytes, i - coded);
    const float value = coded_at(w, row, i);
    for (std::uint32_t e = w.first_escape[first + r]; e < w.first_escape[first + r + 1]; ++e) {
      if (w.escape_columns[e] != i) continue;
      return float_of_bits(bits_of_float(value) | std::uint32_t{w.escape_exponents[e]} << 23);
    }
    return value;
  };
  matmul(weight, rows, cols, x, x_stride, batch, y, y_stride);
}

void kda_step(float* state, const float* q, const float* k, const float* v, const float* alpha,
              float beta, float* out, std::size_t d_k, std::size_t d_v) {
  for (std::size_t j = 0; j < d_v; j += kLanes) {
    kda_columns(state + j, q, k, v + j, alpha, beta, out + j, d_k, d_v,
                d_v - j < kLanes ? d_v - j : kLanes);
  }
}

constexpr KernelTable make_table() {
  KernelTable table = elementwise_table("reference");
  table.matmul_f32 = matmul_f32;
  table.matmul_bf16 = matmul_bf16;
  table.matmul_mxfp4 = matmul_mxfp4;
  table.matmul_coded = matmul_coded;
  table.dot = dot;
  table.kda_step = kda_step;
  return table;
}

constexpr KernelTable kTable = make_table();

}  // namespace

const KernelTable& reference_table() { return kTable; }

}  // namespace k3::kernels
