// Every tensor of a checkpoint that is made up: name, type, shape, values and shard.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/checkpoint/model_config.h"
#include "common/checkpoint/model_tensors.h"
#include "common/checkpoint/safetensors.h"

namespace k3::cli {

// The values of one tensor. F32 and BF16: normal around `centre`, zero from element `values` on.
// U8: any byte when `scale` is 0 (packed weights), else `scale` or the byte below it (E8M0).
struct Filling {
  float centre = 0;
  float deviation = 0;
  std::uint64_t values = 0;
  std::uint8_t scale = 0;
};

struct PlannedTensor {
  std::string name;
  DType dtype = DType::kBf16;
  Shape shape;
  Filling filling;
  std::uint64_t bytes = 0;
  std::uint32_t shard = 0;
  int layer = -1;  // -1 for the top level
};

struct CheckpointPlan {
  std::vector<PlannedTensor> tensors;  // by shard, in the order of its file
  std::uint32_t shards = 0;
};

// The released layout: one shard a layer and one for the top level; in each the F32, BF16 and U8
// tensors, by name. With `scatter` each tensor's shard and place follow from its name's hash.
// Values keep activations near 1: matrices have deviation 1/sqrt(columns), norms lie near 1.
CheckpointPlan plan_checkpoint(const ModelConfig& config, bool scatter);

// The layer of tensors that no layer of the text model uses.
inline constexpr int kNoLayer = std::numeric_limits<int>::max();

// Adds what the released checkpoint has besides the text model, in two more shards: 168 BF16
// tensors under vision_tower. of 970,484,536 bytes together. Only number and sum are those of the
// released vision tower; names and shapes are stand-ins, which the text model ignores.
void add_vision_stand_ins(CheckpointPlan& plan);

}  // namespace k3::cli
