// The configuration of the released model, field by field, for tests of its reader.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace k3::test {

inline nlohmann::json released_config() {
  std::vector<int> mla;
  for (int layer = 4; layer <= 92; layer += 4) mla.push_back(layer);
  mla.push_back(93);
  std::vector<int> kda;
  for (int layer = 1; layer <= 92; ++layer) {
    if (layer % 4 != 0) kda.push_back(layer);
  }
  const nlohmann::json linear = {{"num_heads", 96},
                                 {"head_dim", 128},
                                 {"short_conv_kernel_size", 4},
                                 {"gate_lower_bound", -5.0},
                                 {"use_full_rank_gate", true},
                                 {"full_attn_layers", mla},
                                 {"kda_layers", kda}};
  const nlohmann::json quantization = {
      {"format", "mxfp4-pack-quantized"},
      {"config_groups", {{"group_0", {{"weights", {{"group_size", 32}}}}}}}};
  const nlohmann::json text = {{"num_hidden_layers", 93},
                               {"hidden_size", 7168},
                               {"vocab_size", 163840},
                               {"rms_norm_eps", 1e-5},
                               {"num_attention_heads", 96},
                               {"head_dim", 192},  // not the KDA head's
                               {"q_lora_rank", 1536},
                               {"kv_lora_rank", 512},
                               {"qk_nope_head_dim", 128},
                               {"qk_rope_head_dim", 64},
                               {"v_head_dim", 128},
                               {"mla_use_nope", true},
                               {"mla_use_output_gate", true},
                               {"num_experts", 896},
                               {"num_experts_per_token", 16},
                               {"num_shared_experts", 2},
                               {"num_expert_group", 1},
                               {"routed_expert_hidden_size", 3584},
                               {"moe_intermediate_size", 3072},
                               {"routed_scaling_factor", 2.5},
                               {"moe_renormalize", true},
                               {"latent_moe_use_norm", true},
                               {"moe_router_activation_func", "sigmoid"},
                               {"first_k_dense_replace", 1},
                               {"intermediate_size", 33792},
                               {"attn_res_block_size", 12},
                               {"hidden_act", "situ"},
                               {"activation_situ_beta", 4.0},
                               {"activation_situ_linear_beta", 25.0},
                               {"num_nextn_predict_layers", 0},
                               {"linear_attn_config", linear},
                               {"quantization_config", quantization}};
  return {{"model_type", "kimi_k3"}, {"text_config", text}};
}

}  // namespace k3::test
