// Types, values and layout by tensor; see checkpoint_plan.h.
#include "tools/k3/checkpoint_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>
#include <utility>

#include "common/base/hash.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/trunk_order.h"

namespace k3::cli {
namespace {

constexpr double kE2m1Rms = 2.93;  // of a random nibble's value
constexpr int kE8m0Bias = 127;

float one_over_root(double columns) { return static_cast<float>(1 / std::sqrt(columns)); }

DType dtype_of(TrunkRole role) {
  switch (role) {
    case TrunkRole::kKdaQConv:
    case TrunkRole::kKdaKConv:
    case TrunkRole::kKdaVConv:
    case TrunkRole::kKdaALog:
    case TrunkRole::kKdaDtBias:
    case TrunkRole::kKdaONorm:
    case TrunkRole::kRouterBias:
      return DType::kF32;
    default:
      return DType::kBf16;
  }
}

Filling filling_of(const TrunkTensor& tensor) {
  Filling filling;
  filling.values = std::uint64_t{tensor.rows} * tensor.cols;
  switch (tensor.role) {
    case TrunkRole::kAttnResNorm:
    case TrunkRole::kInputNorm:
    case TrunkRole::kKdaONorm:
    case TrunkRole::kMlaQaNorm:
    case TrunkRole::kMlaKvaNorm:
    case TrunkRole::kMlpResNorm:
    case TrunkRole::kPostNorm:
    case TrunkRole::kRoutedNorm:
    case TrunkRole::kOutResNorm:
    case TrunkRole::kFinalNorm:
      filling.centre = 1;
      filling.deviation = 0.1f;
      break;
    case TrunkRole::kKdaALog:
    case TrunkRole::kKdaDtBias:
      filling.deviation = 0.3f;
      break;
    case TrunkRole::kRouterBias:
      filling.deviation = 0.01f;
      break;
    default:
      filling.deviation = one_over_root(tensor.cols);
  }
  return filling;
}

// Weights a row: two to a packed byte.
Filling scale_filling(double columns) {
  Filling filling;
  filling.scale = static_cast<std::uint8_t>(kE8m0Bias - std::ilogb(kE2m1Rms * std::sqrt(columns)));
  return filling;
}

class Planner {
 public:
  explicit Planner(const ModelConfig& config) : config_(config) {
    plan_.shards = static_cast<std::uint32_t>(config.layers) + 1;
  }

  CheckpointPlan plan() {
    for (const TrunkTensor& tensor : trunk_order(config_)) {
      add(tensor.name, dtype_of(tensor.role), legal_shapes(tensor, config_).front(),
          filling_of(tensor), tensor.layer);
    }
    add(kEmbeddingName, DType::kBf16,
        {static_cast<std::uint64_t>(config_.vocab), static_cast<std::uint64_t>(config_.hidden)},
        {.centre = 0, .deviation = 1, .values = ~std::uint64_t{0}, .scale = 0}, -1);
    for (int layer = config_.dense_layers; layer < config_.layers; ++layer) {
      for (int expert = 0; expert < config_.experts; ++expert) add_expert(layer, expert);
    }
    return std::move(plan_);
  }

 private:
  // `layer` is -1 for the top level, which has the last shard.
  void add(std::string name, DType dtype, Shape shape, const Filling& filling, int layer) {
    std::uint64_t bytes = bytes_of(dtype);
    for (const std::uint64_t dimension : shape) bytes *= dimension;
    plan_.tensors.push_back(
        {.name = std::move(name),
         .dtype = dtype,
         .shape = std::move(shape),
         .filling = filling,
         .bytes = bytes,
         .shard = static_cast<std::uint32_t>(layer < 0 ? config_.layers : layer),
         .layer = layer});
  }

  void add_expert(int layer, int expert) {
    for (int i = 0; i < kExpertParts; ++i) {
      const auto part = ExpertPart(i);
      const bool scales = part == ExpertPart::kW1Scale || part == ExpertPart::kW2Scale ||
                          part == ExpertPart::kW3Scale;
      const int columns = part == ExpertPart::kW2Scale ? config_.expert_width : config_.latent;
      add(expert_tensor_name(layer, expert, part), DType::kU8, expert_part_shape(config_, part),
          scales ? scale_filling(columns) : Filling{}, layer);
    }
  }

  const ModelConfig& config_;
  CheckpointPlan plan_;
};

std::uint64_t hash_of(const std::string& name) { return checksum(std::as_bytes(std::span(name))); }

}  // namespace

CheckpointPlan plan_checkpoint(const ModelConfig& config, bool scatter) {
  CheckpointPlan plan = Planner(config).plan();
  if (scatter) {
    for (PlannedTensor& tensor : plan.tensors) {
      tensor.shard = static_cast<std::uint32_t>(hash_of(tensor.name) % plan.shards);
    }
  }
  std::sort(plan.tensors.begin(), plan.tensors.end(),
            [scatter](const PlannedTensor& a, const PlannedTensor& b) {
              if (a.shard != b.shard) return a.shard < b.shard;
              if (scatter) return hash_of(a.name) < hash_of(b.name);
              return std::tie(a.dtype, a.name) < std::tie(b.dtype, b.name);
            });
  return plan;
}

void add_vision_stand_ins(CheckpointPlan& plan) {
  constexpr std::uint64_t kTensors = 168;
  constexpr std::uint64_t kValues = 970'484'536 / 2;
  constexpr std::uint32_t kShards = 2;
  for (std::uint64_t i = 0; i < kTensors; ++i) {
    const std::uint64_t values = (i + 1) * kValues / kTensors - i * kValues / kTensors;
    plan.tensors.push_back({.name = fmt::format("vision_tower.stand_in.{:03}.weight", i),
                            .dtype = DType::kBf16,
                            .shape = {values},
                            .filling = {.deviation = one_over_root(kTensors), .values = values},
                            .bytes = 2 * values,
                            .shard = plan.shards + static_cast<std::uint32_t>(i * kShards / kTensors),
                            .layer = kNoLayer});
  }
  plan.shards += kShards;
}

}  // namespace k3::cli
