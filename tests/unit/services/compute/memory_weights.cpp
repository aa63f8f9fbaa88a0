#include "tests/unit/services/compute/memory_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace k3::compute::test {

namespace {

constexpr std::uint32_t kUnitTensors = 4;

const char* suffix(TrunkRole role) {
  switch (role) {
    case TrunkRole::kAttnResNorm:
      return "self_attention_res_norm_weight";
    case TrunkRole::kAttnResProj:
      return "self_attention_res_proj_weight";
    case TrunkRole::kInputNorm:
      return "input_layernorm_weight";
    case TrunkRole::kKdaQ:
      return "self_attn_q_proj_weight";
    case TrunkRole::kKdaQConv:
      return "self_attn_q_conv1d_weight";
    case TrunkRole::kKdaK:
      return "self_attn_k_proj_weight";
    case TrunkRole::kKdaKConv:
      return "self_attn_k_conv1d_weight";
    case TrunkRole::kKdaV:
      return "self_attn_v_proj_weight";
    case TrunkRole::kKdaVConv:
      return "self_attn_v_conv1d_weight";
    case TrunkRole::kKdaFa:
      return "self_attn_f_a_proj_weight";
    case TrunkRole::kKdaFb:
      return "self_attn_f_b_proj_weight";
    case TrunkRole::kKdaDtBias:
      return "self_attn_dt_bias";
    case TrunkRole::kKdaALog:
      return "self_attn_A_log";
    case TrunkRole::kKdaB:
      return "self_attn_b_proj_weight";
    case TrunkRole::kKdaONorm:
      return "self_attn_o_norm_weight";
    case TrunkRole::kKdaG:
    case TrunkRole::kMlaG:
      return "self_attn_g_proj_weight";
    case TrunkRole::kKdaO:
    case TrunkRole::kMlaO:
      return "self_attn_o_proj_weight";
    case TrunkRole::kMlaQa:
      return "self_attn_q_a_proj_weight";
    case TrunkRole::kMlaQaNorm:
      return "self_attn_q_a_layernorm_weight";
    case TrunkRole::kMlaQb:
      return "self_attn_q_b_proj_weight";
    case TrunkRole::kMlaKva:
      return "self_attn_kv_a_proj_with_mqa_weight";
    case TrunkRole::kMlaKvaNorm:
      return "self_attn_kv_a_layernorm_weight";
    case TrunkRole::kMlaKvb:
      return "self_attn_kv_b_proj_weight";
    case TrunkRole::kMlpResNorm:
      return "mlp_res_norm_weight";
    case TrunkRole::kMlpResProj:
      return "mlp_res_proj_weight";
    case TrunkRole::kPostNorm:
      return "post_attention_layernorm_weight";
    case TrunkRole::kMlpGate:
      return "mlp_gate_proj_weight";
    case TrunkRole::kMlpUp:
      return "mlp_up_proj_weight";
    case TrunkRole::kMlpDown:
      return "mlp_down_proj_weight";
    case TrunkRole::kRouter:
      return "mlp_gate_weight";
    case TrunkRole::kRouterBias:
      return "mlp_e_score_correction_bias";
    case TrunkRole::kLatentDown:
      return "mlp_down_weight";
    case TrunkRole::kSharedGate:
      return "mlp_shared_w1_weight";
    case TrunkRole::kSharedUp:
      return "mlp_shared_w3_weight";
    case TrunkRole::kSharedDown:
      return "mlp_shared_w2_weight";
    case TrunkRole::kRoutedNorm:
      return "mlp_norm_weight";
    case TrunkRole::kLatentUp:
      return "mlp_up_weight";
    case TrunkRole::kOutResNorm:
      return "output_attn_res_norm_weight";
    case TrunkRole::kOutResProj:
      return "output_attn_res_proj_weight";
    case TrunkRole::kFinalNorm:
      return "norm_weight";
    case TrunkRole::kHead:
      return "lm_head_weight";
  }
  return "";
}

}  // namespace

std::string tiny_name(const TrunkTensor& tensor) {
  if (tensor.layer < 0) return suffix(tensor.role);
  return fmt::format("layers_{}_{}", tensor.layer, suffix(tensor.role));
}

MemoryTrunk::MemoryTrunk(const std::vector<TrunkTensor>& order, const TensorMap& weights,
                         std::uint32_t block_rows)
    : order_(order), weights_(weights), block_rows_(block_rows) {}

Status MemoryTrunk::begin_pass(bool with_head, bool) {
  tensor_ = row_ = rows_ = 0;
  ++passes_;
  head_passes_ += with_head ? 1 : 0;
  return {};
}

Result<TrunkBlock> MemoryTrunk::block() {
  const TrunkTensor& tensor = order_.at(tensor_);
  if (tensor.name == failing_) {
    failing_.clear();
    return fail(ErrorCode::kWeights, "{} cannot be read", tensor.name);
  }
  const std::uint32_t groups =
      std::max(1u, (block_rows_ + tensor.row_group - 1) / tensor.row_group);
  rows_ = std::min(groups * tensor.row_group, tensor.rows - row_);
  const std::vector<float>& values = weights_.at(tiny_name(tensor));
  if (values.size() != std::size_t{tensor.rows} * tensor.cols) {
    return fail(ErrorCode::kFailed, "test data: {} has {} values", tensor.name, values.size());
  }
  const std::span<const float> rows(values.data() + std::size_t{row_} * tensor.cols,
                                    std::size_t{rows_} * tensor.cols);
  return TrunkBlock{.tensor = tensor_,
                    .first_row = row_,
                    .rows = rows_,
                    .encoding = static_cast<std::uint8_t>(TrunkEncoding::kRawF32),
                    .bytes = std::as_bytes(rows),
                    .ends_unit = tensor_ % kUnitTensors == 0};
}

void MemoryTrunk::done() {
  row_ += rows_;
  if (row_ == order_.at(tensor_).rows) {
    ++tensor_;
    row_ = 0;
  }
}

void MemoryTrunk::abandon() { ++abandoned_; }

Result<EmbeddingRows> MemoryTrunk::embedding(std::span<const std::int32_t> ids) {
  const std::vector<float>& table = weights_.at("embed_tokens_weight");
  const std::size_t width = order_.front().cols;
  EmbeddingRows rows{.encoding = static_cast<std::uint8_t>(TrunkEncoding::kRawF32),
                     .row_bytes = static_cast<std::uint32_t>(width * sizeof(float)),
                     .data = std::vector<std::byte>(ids.size() * width * sizeof(float))};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::memcpy(rows.data.data() + i * rows.row_bytes, table.data() + ids[i] * width,
                rows.row_bytes);
  }
  return rows;
}

MemoryExperts::MemoryExperts(const ModelConfig& config, const TensorMap& weights, Order order)
    : config_(config), weights_(weights), order_(order) {}

Status MemoryExperts::fetch(int layer, std::span<const std::uint32_t> experts) {
  layer_ = layer;
  pending_.assign(experts.begin(), experts.end());
  if (order_ == Order::kAscending) std::reverse(pending_.begin(), pending_.end());
  return {};
}

Result<ExpertView> MemoryExperts::next() {
  if (layer_ == failing_layer_) {
    failing_layer_ = -1;
    return fail(ErrorCode::kWeights, "layer {} expert {} cannot be read", layer_, pending_.back());
  }
  const std::uint32_t expert = pending_.back();
  pending_.pop_back();
  return ExpertView{.expert = expert,
                    .w1 = matrix(expert, "w1", config_.expert_width, config_.latent),
                    .w2 = matrix(expert, "w2", config_.latent, config_.expert_width),
                    .w3 = matrix(expert, "w3", config_.expert_width, config_.latent)};
}

kernels::Matrix MemoryExperts::matrix(std::uint32_t expert, const char* part, int rows,
                                      int cols) const {
  const auto& values =
      weights_.at(fmt::format("layers_{}_mlp_experts_{}_{}_weight", layer_, expert, part));
  return {.format = kernels::WeightFormat::kF32,
          .data = reinterpret_cast<const std::uint8_t*>(values.data()),
          .rows = static_cast<std::size_t>(rows),
          .cols = static_cast<std::size_t>(cols)};
}

}  // namespace k3::compute::test
