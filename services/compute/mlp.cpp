#include "services/compute/mlp.h"

#include <algorithm>

namespace k3::compute {

Mlp::Part Mlp::dense(const ModelConfig& config) {
  return {TrunkRole::kMlpGate, TrunkRole::kMlpUp, TrunkRole::kMlpDown,
          static_cast<std::size_t>(config.dense_width)};
}

Mlp::Part Mlp::shared(const ModelConfig& config) {
  return {TrunkRole::kSharedGate, TrunkRole::kSharedUp, TrunkRole::kSharedDown,
          static_cast<std::size_t>(config.shared_width())};
}

Mlp::Mlp(const ModelConfig& config, std::size_t max_rows, const kernels::Multiplier& multiplier)
    : config_(config), multiplier_(multiplier) {
  std::size_t width = shared(config).width;
  if (config.dense_layers > 0) width = std::max(width, dense(config).width);
  gate_.resize(max_rows * width);
  up_.resize(max_rows * width);
}

Status Mlp::run(TrunkCursor& trunk, int layer, const Part& part, std::size_t rows, const float* x,
                float* out) {
  const std::size_t hidden = config_.hidden;
  K3_TRY(trunk.queue(layer, part.gate, x, hidden, rows, gate_.data(), part.width));
  K3_TRY(trunk.multiply(layer, part.up, x, hidden, rows, up_.data(), part.width));
  multiplier_.for_each(rows, [&](std::size_t r) {
    float* gate = gate_.data() + r * part.width;
    multiplier_.table().situ(gate, up_.data() + r * part.width, gate, part.width, config_.situ_beta,
                             config_.situ_linear_beta);
  });
  return trunk.multiply(layer, part.down, gate_.data(), part.width, rows, out, hidden);
}

}  // namespace k3::compute
