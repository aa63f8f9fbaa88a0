// What the arithmetic holds besides weights: one formula for the worker's own plan, the automatic
// budgets of the command line, and every refusal.
#pragma once

#include <cstdint>

#include "common/checkpoint/model_config.h"

namespace k3 {

// The latent cache of a sequence grows by this many positions at a time.
inline constexpr std::uint64_t kLatentBlockPositions = 256;

// `positions` rounded up to whole blocks.
constexpr std::uint64_t whole_blocks(std::uint64_t positions) {
  return (positions + kLatentBlockPositions - 1) / kLatentBlockPositions * kLatentBlockPositions;
}

// Snapshots of the residual stream in one pass: one at the start of every block of layers.
std::uint64_t most_snapshots(const ModelConfig& config);

// Bytes of the buffers of one pass over `rows` rows, with logits for every row; they do not depend
// on the length of a sequence. A test of the worker holds it against what it allocates; messages
// under way are not in it.
std::uint64_t activation_bytes(const ModelConfig& config, std::uint64_t rows);

// Bytes of the state of one sequence of `positions` positions:
//   KDA layers * (H D^2 + 3 (K - 1) H D) * 4
//   + MLA layers * (kv_rank + rope_dim) * 4 * (positions rounded up to whole blocks).
std::uint64_t sequence_bytes(const ModelConfig& config, std::uint64_t positions);

}  // namespace k3
