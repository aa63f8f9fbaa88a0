#include "common/plan/compute_memory.h"

#include <algorithm>

namespace k3 {
namespace {

// As a size: configuration numbers are checked positive when they are read.
std::uint64_t u64(int value) { return static_cast<std::uint64_t>(value); }

std::uint64_t count(const ModelConfig& config, Attention kind) {
  return static_cast<std::uint64_t>(
      std::count(config.attention.begin(), config.attention.end(), kind));
}

// --- floats of the buffers of each part; the names are those of the members they size ---

std::uint64_t kda_floats(const ModelConfig& config, std::uint64_t rows) {
  const std::uint64_t width = u64(config.kda_width());
  const std::uint64_t per_row = 6 * width + u64(config.kda_head_dim) + u64(config.kda_heads);
  const std::uint64_t weights =
      (3 * u64(config.conv_taps) + 1) * width + u64(config.kda_heads) + u64(config.kda_head_dim);
  const std::uint64_t scratch = 4 * width;
  return rows * per_row + weights + scratch;
}

std::uint64_t mla_floats(const ModelConfig& config, std::uint64_t rows) {
  const std::uint64_t heads = u64(config.mla_heads);
  const std::uint64_t kv_rank = u64(config.kv_rank);
  const std::uint64_t latent = kv_rank + u64(config.rope_dim);
  const std::uint64_t per_row =
      u64(config.q_rank) + latent +
      heads * (u64(config.q_head_dim()) + 2 * u64(config.v_dim) + latent + kv_rank);
  const std::uint64_t weights = u64(config.q_rank) + kv_rank;
  return rows * per_row + weights + heads * kv_rank;
}

std::uint64_t mlp_floats(const ModelConfig& config, std::uint64_t rows) {
  const std::uint64_t dense = config.dense_layers > 0 ? u64(config.dense_width) : 0;
  return 2 * rows * std::max(u64(config.shared_width()), dense);
}

std::uint64_t moe_floats(const ModelConfig& config, std::uint64_t rows) {
  const std::uint64_t experts = u64(config.experts);
  const std::uint64_t latent = u64(config.latent);
  const std::uint64_t per_row = experts + (2 + u64(config.top_k)) * latent +
                                2 * u64(config.expert_width) + u64(config.hidden);
  return rows * per_row + experts + latent;
}

std::uint64_t stream_floats(const ModelConfig& config, std::uint64_t rows) {
  constexpr std::uint64_t kRowBuffers = 5;  // prefix, h, x, out and the head's input
  constexpr std::uint64_t kVectors = 3;     // folded norms
  const std::uint64_t hidden = u64(config.hidden);
  return rows * ((kRowBuffers + most_snapshots(config)) * hidden + u64(config.vocab)) +
         kVectors * hidden;
}

}  // namespace

std::uint64_t most_snapshots(const ModelConfig& config) {
  return (u64(config.layers) + u64(config.residual_block) - 1) / u64(config.residual_block);
}

std::uint64_t activation_bytes(const ModelConfig& config, std::uint64_t rows) {
  return sizeof(float) *
         (stream_floats(config, rows) + kda_floats(config, rows) + mla_floats(config, rows) +
          mlp_floats(config, rows) + moe_floats(config, rows));
}

std::uint64_t sequence_bytes(const ModelConfig& config, std::uint64_t positions) {
  const std::uint64_t width = u64(config.kda_width());
  const std::uint64_t kda =
      width * u64(config.kda_head_dim) + 3 * (u64(config.conv_taps) - 1) * width;
  const std::uint64_t mla = (u64(config.kv_rank) + u64(config.rope_dim)) * whole_blocks(positions);
  return sizeof(float) *
         (count(config, Attention::kKda) * kda + count(config, Attention::kMla) * mla);
}

}  // namespace k3
