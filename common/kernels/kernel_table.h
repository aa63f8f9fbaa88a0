// All arithmetic that touches a weight or an activation vector, behind one table per instruction
// set. reference.cpp defines the bits; every other table gives the same ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/codec/coded_layout.h"

namespace k3::kernels {

// The contract of every dot product: sixteen fp32 lanes; element i is fused-multiply-added into
// lane i % 16 in increasing i; the lanes are reduced by adding lane l + 8 to l (l < 8), then l + 4,
// l + 2, l + 1. A row's result depends on nothing but that row and that input.
//
// Weights are untyped bytes because tensors lie unaligned in shards. Inputs and outputs are fp32,
// aligned as a float is and no further, and never overlap unless said otherwise. All functions are
// pure: any thread. Which payload a NaN carries is the one thing that is not fixed.
struct KernelTable {
  const char* name;  // "reference", "avx2", "avx512", "neon"

  // y[b * y_stride + r] = dot(row r of w, x + b * x_stride) for r < rows, b < batch. A batch passes
  // over the weights several times: give it no more rows than the cache holds (Multiplier does).
  // f32, bf16: row-major [rows, cols], little-endian.
  void (*matmul_f32)(const std::uint8_t* w, std::size_t rows, std::size_t cols, const float* x,
                     std::size_t x_stride, std::size_t batch, float* y, std::size_t y_stride);
  void (*matmul_bf16)(const std::uint8_t* w, std::size_t rows, std::size_t cols, const float* x,
                      std::size_t x_stride, std::size_t batch, float* y, std::size_t y_stride);
  // MXFP4: packed [rows, cols / 2], the low nibble is the even column; scales [rows, cols / 32],
  // E8M0. The weight is E2M1[nibble] * 2^(scale - 127), exact in fp32 (or infinite); scale 255
  // makes its group zero. cols is a multiple of 32.
  void (*matmul_mxfp4)(const std::uint8_t* packed, const std::uint8_t* scales, std::size_t rows,
                       std::size_t cols, const float* x, std::size_t x_stride, std::size_t batch,
                       float* y, std::size_t y_stride);
  // Rows `first`..first + rows - 1 of a coded matrix of `cols` columns; y[b * y_stride + r] is that
  // of row first + r. The same bits as matmul_bf16 over the decoded rows.
  void (*matmul_coded)(const CodedBf16& w, std::size_t first, std::size_t rows, std::size_t cols,
                       const float* x, std::size_t x_stride, std::size_t batch, float* y,
                       std::size_t y_stride);

  float (*dot)(const float* a, const float* b, std::size_t n);

  // y[i] = fma(a, x[i], y[i]); bf16: x is n bf16 values.
  void (*axpy)(float a, const float* x, float* y, std::size_t n);
  void (*axpy_bf16)(float a, const std::uint8_t* x, float* y, std::size_t n);
  // y[i] = y[i] + x[i];  y[i] = a * y[i].
  void (*add)(const float* x, float* y, std::size_t n);
  void (*scale)(float a, float* y, std::size_t n);
  // out[i] = value of bf16 x[i].
  void (*widen_bf16)(const std::uint8_t* x, float* out, std::size_t n);

  // In place: y[i] = sigmoid(y[i]);  y[i] = y[i] * sigmoid(y[i]).
  void (*sigmoid)(float* y, std::size_t n);
  void (*silu)(float* y, std::size_t n);
  // y[i] = y[i] * sigmoid(gate[i]).
  void (*gate_by_sigmoid)(const float* gate, float* y, std::size_t n);
  // out[i] = (b1 * tanh(gate[i] / b1) * sigmoid(gate[i])) * (b2 * tanh(up[i] / b2)); out may be
  // gate or up. The sigmoid sees the uncapped gate (docs/architecture.md, "SiTU").
  void (*situ)(const float* gate, const float* up, float* out, std::size_t n, float b1, float b2);
  // In place over n >= 1 scores: exp(y - max) / sum; the sum follows the lane contract.
  void (*softmax)(float* y, std::size_t n);
  // One block of an online softmax, n >= 1 scores in place: y[i] = exp(y[i] - top), where *top has
  // first risen to the block's largest. Returns factor = exp(old top - top), by which all that was
  // summed before must shrink; *sum = fma(factor, *sum, sum of y), in which the sum of y follows
  // the lane contract.
  float (*softmax_block)(float* y, std::size_t n, float* top, float* sum);
  // y[i] = fma(weights[t], rows[t * row_stride + i], y[i]) for t < count, in increasing t.
  void (*add_weighted_rows)(const float* weights, const float* rows, std::size_t row_stride,
                            std::size_t count, float* y, std::size_t n);

  // out[i] = w[i] * (x[i] / sqrt(dot(x, x) / n + eps)); out may be x.
  void (*rms_norm)(const float* x, const float* w, float eps, float* out, std::size_t n);
  // In place: y[i] = y[i] / sqrt(dot(y, y) + eps).
  void (*l2_norm)(float* y, float eps, std::size_t n);

  // KDA decay of one head: alpha[i] = exp(lower_bound * sigmoid(a * (z[i] + dt_bias[i]))), where
  // a = exp(A_log[head]).
  void (*kda_decay)(const float* z, const float* dt_bias, float a, float lower_bound, float* alpha,
                    std::size_t n);
  // One KDA step of one head over state S [d_k, d_v], in this order per the model's recurrence:
  //   S[i][:] *= alpha[i];  u = S^T k (over i increasing, fma);
  //   S[i][:] = fma(k[i], beta * (v - u), S[i][:]);  out = S^T q (over i increasing, fma).
  // q is already scaled.
  void (*kda_step)(float* state, const float* q, const float* k, const float* v, const float* alpha,
                   float beta, float* out, std::size_t d_k, std::size_t d_v);
  // Causal depthwise convolution of one position, then SiLU. history [taps - 1][channels] holds
  // past inputs, oldest first, and is shifted by x; w [channels, taps], tap taps - 1 meets x. The
  // taps are summed oldest first, fma from 0.
  void (*conv_silu)(const float* x, const float* w, float* history, float* out,
                    std::size_t channels, std::size_t taps);

  // exp of one value, the implementation every function above uses.
  float (*exp)(float x);
};

}  // namespace k3::kernels
