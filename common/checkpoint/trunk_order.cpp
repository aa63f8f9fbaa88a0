#include "common/checkpoint/trunk_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "common/base/check.h"

namespace k3 {
namespace {

// Appends tensors of one layer (or, with layer -1, of the top level) to the order.
class Appender {
 public:
  Appender(std::vector<TrunkTensor>& order, int layer, std::string prefix)
      : order_(order), layer_(layer), prefix_(std::move(prefix)) {}

  void matrix(TrunkRole role, std::string_view suffix, int rows, int cols, int row_group = 1) {
    order_.push_back({.layer = layer_,
                      .role = role,
                      .name = fmt::format("{}{}", prefix_, suffix),
                      .rows = static_cast<std::uint32_t>(rows),
                      .cols = static_cast<std::uint32_t>(cols),
                      .row_group = static_cast<std::uint32_t>(row_group)});
  }
  void vector(TrunkRole role, std::string_view suffix, int cols) { matrix(role, suffix, 1, cols); }

 private:
  std::vector<TrunkTensor>& order_;
  int layer_;
  std::string prefix_;
};

void append_kda(Appender& to, const ModelConfig& c) {
  const int width = c.kda_width();
  to.matrix(TrunkRole::kKdaQ, "self_attn.q_proj.weight", width, c.hidden);
  to.matrix(TrunkRole::kKdaQConv, "self_attn.q_conv1d.weight", width, c.conv_taps);
  to.matrix(TrunkRole::kKdaK, "self_attn.k_proj.weight", width, c.hidden);
  to.matrix(TrunkRole::kKdaKConv, "self_attn.k_conv1d.weight", width, c.conv_taps);
  to.matrix(TrunkRole::kKdaV, "self_attn.v_proj.weight", width, c.hidden);
  to.matrix(TrunkRole::kKdaVConv, "self_attn.v_conv1d.weight", width, c.conv_taps);
  to.matrix(TrunkRole::kKdaFa, "self_attn.f_a_proj.weight", c.kda_head_dim, c.hidden);
  to.matrix(TrunkRole::kKdaFb, "self_attn.f_b_proj.weight", width, c.kda_head_dim);
  to.vector(TrunkRole::kKdaDtBias, "self_attn.dt_bias", width);
  // One value per head; the zero padding a checkpoint may store after them is left out.
  to.vector(TrunkRole::kKdaALog, "self_attn.A_log", c.kda_heads);
  to.matrix(TrunkRole::kKdaB, "self_attn.b_proj.weight", c.kda_heads, c.hidden);
  to.matrix(TrunkRole::kKdaG, "self_attn.g_proj.weight", width, c.hidden);
  to.vector(TrunkRole::kKdaONorm, "self_attn.o_norm.weight", c.kda_head_dim);
  to.matrix(TrunkRole::kKdaO, "self_attn.o_proj.weight", c.hidden, width);
}

void append_mla(Appender& to, const ModelConfig& c) {
  const int head_rows = c.nope_dim + c.v_dim;
  const int value_width = c.mla_heads * c.v_dim;
  to.matrix(TrunkRole::kMlaQa, "self_attn.q_a_proj.weight", c.q_rank, c.hidden);
  to.vector(TrunkRole::kMlaQaNorm, "self_attn.q_a_layernorm.weight", c.q_rank);
  to.matrix(TrunkRole::kMlaQb, "self_attn.q_b_proj.weight", c.mla_heads * c.q_head_dim(), c.q_rank);
  to.matrix(TrunkRole::kMlaKva, "self_attn.kv_a_proj_with_mqa.weight", c.kv_rank + c.rope_dim,
            c.hidden);
  to.vector(TrunkRole::kMlaKvaNorm, "self_attn.kv_a_layernorm.weight", c.kv_rank);
  to.matrix(TrunkRole::kMlaKvb, "self_attn.kv_b_proj.weight", c.mla_heads * head_rows, c.kv_rank,
            head_rows);
  to.matrix(TrunkRole::kMlaG, "self_attn.g_proj.weight", value_width, c.hidden);
  to.matrix(TrunkRole::kMlaO, "self_attn.o_proj.weight", c.hidden, value_width);
}

void append_dense_mlp(Appender& to, const ModelConfig& c) {
  to.matrix(TrunkRole::kMlpGate, "mlp.gate_proj.weight", c.dense_width, c.hidden);
  to.matrix(TrunkRole::kMlpUp, "mlp.up_proj.weight", c.dense_width, c.hidden);
  to.matrix(TrunkRole::kMlpDown, "mlp.down_proj.weight", c.hidden, c.dense_width);
}

void append_moe(Appender& to, const ModelConfig& c) {
  const int shared = c.shared_width();
  to.matrix(TrunkRole::kRouter, "block_sparse_moe.gate.weight", c.experts, c.hidden);
  to.vector(TrunkRole::kRouterBias, "block_sparse_moe.gate.e_score_correction_bias", c.experts);
  to.matrix(TrunkRole::kLatentDown, "block_sparse_moe.routed_expert_down_proj.weight", c.latent,
            c.hidden);
  to.matrix(TrunkRole::kSharedGate, "block_sparse_moe.shared_experts.gate_proj.weight", shared,
            c.hidden);
  to.matrix(TrunkRole::kSharedUp, "block_sparse_moe.shared_experts.up_proj.weight", shared,
            c.hidden);
  to.matrix(TrunkRole::kSharedDown, "block_sparse_moe.shared_experts.down_proj.weight", c.hidden,
            shared);
  to.vector(TrunkRole::kRoutedNorm, "block_sparse_moe.routed_expert_norm.weight", c.latent);
  to.matrix(TrunkRole::kLatentUp, "block_sparse_moe.routed_expert_up_proj.weight", c.hidden,
            c.latent);
}

void append_layer(std::vector<TrunkTensor>& order, const ModelConfig& c, int layer) {
  Appender to(order, layer, fmt::format("language_model.model.layers.{}.", layer));
  to.vector(TrunkRole::kAttnResNorm, "self_attention_res_norm.weight", c.hidden);
  to.vector(TrunkRole::kAttnResProj, "self_attention_res_proj.weight", c.hidden);
  to.vector(TrunkRole::kInputNorm, "input_layernorm.weight", c.hidden);
  if (c.attention[static_cast<std::size_t>(layer)] == Attention::kKda) {
    append_kda(to, c);
  } else {
    append_mla(to, c);
  }
  to.vector(TrunkRole::kMlpResNorm, "mlp_res_norm.weight", c.hidden);
  to.vector(TrunkRole::kMlpResProj, "mlp_res_proj.weight", c.hidden);
  to.vector(TrunkRole::kPostNorm, "post_attention_layernorm.weight", c.hidden);
  if (c.moe(layer)) {
    append_moe(to, c);
  } else {
    append_dense_mlp(to, c);
  }
}

}  // namespace

std::vector<TrunkTensor> trunk_order(const ModelConfig& config) {
  K3_CHECK(config.attention.size() == static_cast<std::size_t>(config.layers),
           fmt::format("{} attention kinds for {} layers", config.attention.size(), config.layers));
  std::vector<TrunkTensor> order;
  for (int layer = 0; layer < config.layers; ++layer) append_layer(order, config, layer);
  Appender top(order, -1, "language_model.");
  top.vector(TrunkRole::kOutResNorm, "model.output_attn_res_norm.weight", config.hidden);
  top.vector(TrunkRole::kOutResProj, "model.output_attn_res_proj.weight", config.hidden);
  top.vector(TrunkRole::kFinalNorm, "model.norm.weight", config.hidden);
  top.matrix(TrunkRole::kHead, "lm_head.weight", config.vocab, config.hidden);
  return order;
}

bool is_product(TrunkRole role) {
  switch (role) {
    case TrunkRole::kKdaQ:
    case TrunkRole::kKdaK:
    case TrunkRole::kKdaV:
    case TrunkRole::kKdaFa:
    case TrunkRole::kKdaFb:
    case TrunkRole::kKdaB:
    case TrunkRole::kKdaG:
    case TrunkRole::kKdaO:
    case TrunkRole::kMlaQa:
    case TrunkRole::kMlaQb:
    case TrunkRole::kMlaKva:
    case TrunkRole::kMlaG:
    case TrunkRole::kMlaO:
    case TrunkRole::kMlpGate:
    case TrunkRole::kMlpUp:
    case TrunkRole::kMlpDown:
    case TrunkRole::kRouter:
    case TrunkRole::kLatentDown:
    case TrunkRole::kSharedGate:
    case TrunkRole::kSharedUp:
    case TrunkRole::kSharedDown:
    case TrunkRole::kLatentUp:
    case TrunkRole::kHead:
      return true;
    default:
      return false;
  }
}

std::uint32_t first_head_tensor(const std::vector<TrunkTensor>& order) {
  const auto first = std::find_if(order.begin(), order.end(), [](const TrunkTensor& tensor) {
    return tensor.role == TrunkRole::kOutResNorm;
  });
  return static_cast<std::uint32_t>(first - order.begin());
}

}  // namespace k3
