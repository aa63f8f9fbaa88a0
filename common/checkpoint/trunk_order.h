// The trunk: every weight used on each token, listed in the exact order of use. The streamer
// delivers and the compute worker consumes in this order; nothing else connects the two.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/checkpoint/model_config.h"

namespace k3 {

enum class TrunkRole : std::uint8_t {
  // every layer
  kAttnResNorm,
  kAttnResProj,
  kInputNorm,
  // KDA
  kKdaQ,
  kKdaQConv,
  kKdaK,
  kKdaKConv,
  kKdaV,
  kKdaVConv,
  kKdaFa,
  kKdaFb,
  kKdaDtBias,
  kKdaALog,
  kKdaB,
  kKdaG,
  kKdaONorm,
  kKdaO,
  // MLA
  kMlaQa,
  kMlaQaNorm,
  kMlaQb,
  kMlaKva,
  kMlaKvaNorm,
  kMlaKvb,
  kMlaG,
  kMlaO,
  // every layer
  kMlpResNorm,
  kMlpResProj,
  kPostNorm,
  // dense MLP
  kMlpGate,
  kMlpUp,
  kMlpDown,
  // MoE
  kRouter,
  kRouterBias,
  kLatentDown,
  kSharedGate,
  kSharedUp,
  kSharedDown,
  kRoutedNorm,
  kLatentUp,
  // after the last layer
  kOutResNorm,
  kOutResProj,
  kFinalNorm,
  kHead,
};

// Whether tensors of this role are matrices that are used in products alone: what may be coded.
bool is_product(TrunkRole role);

// How the bytes of a block are coded. Values travel in messages and in packed files.
enum class TrunkEncoding : std::uint8_t { kRawF32 = 0, kRawBf16 = 1, kCodedBf16 = 2 };

// One tensor of the trunk as a matrix [rows, cols]; a vector is [1, cols], a convolution
// [channels, taps].
struct TrunkTensor {
  int layer = -1;  // -1 after the last layer
  TrunkRole role = TrunkRole::kAttnResNorm;
  std::string name;  // full tensor name in the checkpoint
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::uint32_t row_group = 1;  // blocks hold whole groups of this many rows (kMlaKvb: one head)
};

// All trunk tensors of the layers in use, in order of use; the index in this list is the `tensor`
// of proto/trunk.capnp. The embedding is not in it: its rows are asked for by token id.
std::vector<TrunkTensor> trunk_order(const ModelConfig& config);

// Index of the first tensor of the output head (kOutResNorm).
std::uint32_t first_head_tensor(const std::vector<TrunkTensor>& order);

inline constexpr const char* kEmbeddingName = "language_model.model.embed_tokens.weight";

}  // namespace k3
