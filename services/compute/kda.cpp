#include "services/compute/kda.h"

#include <cmath>

namespace k3::compute {

namespace {

constexpr float kL2NormEps = 1e-6f;
constexpr std::size_t kScratchVectors = 4;  // q, k, v, alpha

}  // namespace

Kda::Kda(const ModelConfig& config, std::size_t max_rows, const kernels::Multiplier& multiplier)
    : config_(config), multiplier_(multiplier) {
  const std::size_t width = config.kda_width();
  for (auto* buffer : {&q_, &k_, &v_, &z_, &gate_, &y_}) buffer->resize(max_rows * width);
  for (auto* taps : {&q_conv_, &k_conv_, &v_conv_}) taps->resize(width * config.conv_taps);
  decay_rank_.resize(max_rows * config.kda_head_dim);
  beta_.resize(max_rows * config.kda_heads);
  dt_bias_.resize(width);
  a_log_.resize(config.kda_heads);
  out_norm_.resize(config.kda_head_dim);
  scratch_.resize(kScratchVectors * width);
}

Status Kda::project(TrunkCursor& trunk, int layer, std::size_t rows, const float* x) {
  const std::size_t hidden = config_.hidden;
  const std::size_t width = config_.kda_width();
  const std::size_t dim = config_.kda_head_dim;
  const std::size_t heads = config_.kda_heads;
  const auto queue = [&](TrunkRole role, const float* in, std::size_t in_width, Floats& out,
                         std::size_t out_width) {
    return trunk.queue(layer, role, in, in_width, rows, out.data(), out_width);
  };
  K3_TRY(queue(TrunkRole::kKdaQ, x, hidden, q_, width));
  K3_TRY(trunk.read(layer, TrunkRole::kKdaQConv, q_conv_));
  K3_TRY(queue(TrunkRole::kKdaK, x, hidden, k_, width));
  K3_TRY(trunk.read(layer, TrunkRole::kKdaKConv, k_conv_));
  K3_TRY(queue(TrunkRole::kKdaV, x, hidden, v_, width));
  K3_TRY(trunk.read(layer, TrunkRole::kKdaVConv, v_conv_));
  K3_TRY(queue(TrunkRole::kKdaFa, x, hidden, decay_rank_, dim));
  trunk.complete();  // decay_rank_
  K3_TRY(queue(TrunkRole::kKdaFb, decay_rank_.data(), dim, z_, width));
  K3_TRY(trunk.read(layer, TrunkRole::kKdaDtBias, dt_bias_));
  K3_TRY(trunk.read(layer, TrunkRole::kKdaALog, a_log_));
  K3_TRY(queue(TrunkRole::kKdaB, x, hidden, beta_, heads));
  K3_TRY(queue(TrunkRole::kKdaG, x, hidden, gate_, width));
  trunk.complete();
  multiplier_.table().sigmoid(beta_.data(), rows * heads);
  return trunk.read(layer, TrunkRole::kKdaONorm, out_norm_);
}

Status Kda::run(TrunkCursor& trunk, int layer, std::span<const Row> rows, const float* x,
                float* out) {
  K3_TRY(project(trunk, layer, rows.size(), x));
  multiplier_.for_each(config_.kda_heads, [&](std::size_t head) { run_head(layer, head, rows); });
  return trunk.multiply(layer, TrunkRole::kKdaO, y_.data(), config_.kda_width(), rows.size(), out,
                        config_.hidden);
}

void Kda::run_head(int layer, std::size_t head, std::span<const Row> rows) {
  const kernels::KernelTable& table = multiplier_.table();
  const std::size_t dim = config_.kda_head_dim;
  const std::size_t width = config_.kda_width();
  const std::size_t taps = config_.conv_taps;
  const std::size_t history = (taps - 1) * dim;
  const std::size_t heads = config_.kda_heads;
  const float query_scale = 1.0f / std::sqrt(static_cast<float>(dim));
  const float a = table.exp(a_log_[head]);
  float* q = scratch_.data() + head * kScratchVectors * dim;
  float* k = q + dim;
  float* v = k + dim;
  float* alpha = v + dim;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::size_t at = r * width + head * dim;
    KdaState& state = rows[r].session->kda(layer);
    const auto convolve = [&](const Floats& in, const Floats& weights, std::size_t which,
                              float* to) {
      table.conv_silu(in.data() + at, weights.data() + head * dim * taps,
                      state.conv_history.data() + (which * heads + head) * history, to, dim, taps);
    };
    convolve(q_, q_conv_, 0, q);
    convolve(k_, k_conv_, 1, k);
    convolve(v_, v_conv_, 2, v);
    table.l2_norm(q, kL2NormEps, dim);
    table.l2_norm(k, kL2NormEps, dim);
    table.scale(query_scale, q, dim);
    table.kda_decay(z_.data() + at, dt_bias_.data() + head * dim, a, config_.decay_lower_bound,
                    alpha, dim);
    float* y = y_.data() + at;
    table.kda_step(state.recurrent.data() + head * dim * dim, q, k, v, alpha,
                   beta_[r * heads + head], y, dim, dim);
    table.rms_norm(y, out_norm_.data(), config_.rms_eps, y, dim);
    table.gate_by_sigmoid(gate_.data() + at, y, dim);
  }
}

std::uint64_t Kda::bytes() const {
  std::uint64_t floats = 0;
  for (const auto* buffer : {&q_, &k_, &v_, &z_, &gate_, &y_, &q_conv_, &k_conv_, &v_conv_,
                             &decay_rank_, &beta_, &dt_bias_, &a_log_, &out_norm_, &scratch_}) {
    floats += buffer->size();
  }
  return floats * sizeof(float);
}

}  // namespace k3::compute
