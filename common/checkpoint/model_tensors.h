// What the tensors of a model are called and which shapes they may have in a checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/model_config.h"
#include "common/checkpoint/trunk_order.h"

namespace k3 {

using Shape = std::vector<std::uint64_t>;

// The shapes in which a checkpoint may store a trunk tensor; the first is the usual one.
std::vector<Shape> legal_shapes(const TrunkTensor& tensor, const ModelConfig& config);

// Shape of one part of a routed expert, in bytes: two weights a byte, a scale per 32 weights.
Shape expert_part_shape(const ModelConfig& config, ExpertPart part);

// "[128, 64]"
std::string text_of(const Shape& shape);

struct ExpertTensor {
  int layer = 0;
  int expert = 0;
  ExpertPart part = ExpertPart::kW1Packed;
};

// The inverse of expert_tensor_name; nothing for every other name, numbers with leading zeros
// included. Layer and expert may exceed the model's.
std::optional<ExpertTensor> parse_expert_tensor_name(std::string_view name);

}  // namespace k3
