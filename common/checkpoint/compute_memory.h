// What a compute worker holds besides its code: one formula for its allocations' plan, for the
// automatic budgets of k3 run, and for every refusal.
#pragma once

#include <cstdint>

#include "common/checkpoint/model_config.h"

namespace k3 {

// The latent cache of a sequence grows by this many positions at a time.
inline constexpr std::uint64_t kLatentBlockPositions = 256;

// Snapshots of the residual stream in one pass: one at the start of every block of layers.
std::uint64_t most_snapshots(const ModelConfig& config);

// Bytes of the buffers of one pass over `rows` rows, with logits for every row, when the longest
// sequence has `positions` positions (its attention scores). Exactly what services/compute
// allocates; a test there compares.
std::uint64_t activation_bytes(const ModelConfig& config, std::uint64_t rows,
                               std::uint64_t positions);

// Bytes of the state of one sequence of `positions` positions:
//   KDA layers * (H D^2 + 3 (K - 1) H D) * 4
//   + MLA layers * (kv_rank + rope_dim) * 4 * (positions rounded up to whole blocks).
std::uint64_t sequence_bytes(const ModelConfig& config, std::uint64_t positions);

}  // namespace k3
