#include "services/compute/layer_stack.h"

#include "common/observe/spans.h"

namespace k3::compute {

LayerStack::LayerStack(const ModelConfig& config, std::size_t max_rows,
                       const kernels::Multiplier& multiplier, ExpertReader& experts)
    : config_(config),
      multiplier_(multiplier),
      residual_(config, max_rows, multiplier),
      kda_(config, max_rows, multiplier),
      mla_(config, max_rows, multiplier),
      mlp_(config, max_rows, multiplier),
      moe_(config, max_rows, multiplier, experts, mlp_) {
  for (auto* vector : {&fold_, &proj_, &norm_}) vector->resize(config.hidden);
  for (auto* buffer : {&h_, &x_, &out_}) buffer->resize(max_rows * config.hidden);
}

Status LayerStack::read_fold(TrunkCursor& trunk, int layer, TrunkRole norm, TrunkRole proj) {
  const spans::Scope span("residual weights", static_cast<std::uint32_t>(layer));
  K3_TRY(trunk.read(layer, norm, fold_));
  K3_TRY(trunk.read(layer, proj, proj_));
  for (std::size_t i = 0; i < fold_.size(); ++i) fold_[i] *= proj_[i];
  return {};
}

Status LayerStack::norm_rows(TrunkCursor& trunk, int layer, TrunkRole role, std::size_t rows,
                             float* out) {
  const spans::Scope span("norm", static_cast<std::uint32_t>(layer));
  K3_TRY(trunk.read(layer, role, norm_));
  const std::size_t hidden = config_.hidden;
  multiplier_.for_each(rows, [&](std::size_t r) {
    multiplier_.table().rms_norm(h_.data() + r * hidden, norm_.data(), config_.rms_eps,
                                 out + r * hidden, hidden);
  });
  return {};
}

Status LayerStack::run_layer(TrunkCursor& trunk, int layer, std::span<const Row> rows) {
  // Layer 0 has no snapshot to mix: its two tensors are read and go unused.
  K3_TRY(read_fold(trunk, layer, TrunkRole::kAttnResNorm, TrunkRole::kAttnResProj));
  residual_.mix(fold_.data(), h_.data());
  if (layer % config_.residual_block == 0) residual_.push_prefix();
  K3_TRY(norm_rows(trunk, layer, TrunkRole::kInputNorm, rows.size(), x_.data()));
  if (config_.attention[layer] == Attention::kKda) {
    const spans::Scope span("kda", static_cast<std::uint32_t>(layer));
    K3_TRY(kda_.run(trunk, layer, rows, x_.data(), out_.data()));
  } else {
    const spans::Scope span("mla", static_cast<std::uint32_t>(layer));
    K3_TRY(mla_.run(trunk, layer, rows, x_.data(), out_.data()));
  }
  residual_.add(out_.data());

  K3_TRY(read_fold(trunk, layer, TrunkRole::kMlpResNorm, TrunkRole::kMlpResProj));
  residual_.mix(fold_.data(), h_.data());
  K3_TRY(norm_rows(trunk, layer, TrunkRole::kPostNorm, rows.size(), x_.data()));
  if (config_.moe(layer)) {
    const spans::Scope span("moe", static_cast<std::uint32_t>(layer));
    K3_TRY(moe_.run(trunk, layer, rows.size(), x_.data(), out_.data()));
  } else {
    const spans::Scope span("dense mlp", static_cast<std::uint32_t>(layer));
    K3_TRY(mlp_.run(trunk, layer, Mlp::dense(config_), rows.size(), x_.data(), out_.data()));
  }
  residual_.add(out_.data());
  return {};
}

Status LayerStack::finish(TrunkCursor& trunk, std::size_t rows, float* out) {
  K3_TRY(read_fold(trunk, -1, TrunkRole::kOutResNorm, TrunkRole::kOutResProj));
  residual_.mix(fold_.data(), h_.data());
  return norm_rows(trunk, -1, TrunkRole::kFinalNorm, rows, out);
}

std::uint64_t LayerStack::bytes() const {
  std::uint64_t floats = 0;
  for (const auto* buffer : {&fold_, &proj_, &norm_, &h_, &x_, &out_}) floats += buffer->size();
  return floats * sizeof(float) + residual_.bytes() + kda_.bytes() + mla_.bytes() + mlp_.bytes() +
         moe_.bytes();
}

}  // namespace k3::compute
