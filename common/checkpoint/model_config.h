// The model's shape and constants, read from config.json. Nothing is defaulted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace k3 {

enum class Attention { kKda, kMla };

// Names follow docs/architecture.md; in brackets the field of the released config.json.
struct ModelConfig {
  int hidden = 0;              // E [hidden_size]
  int layers = 0;              // [num_hidden_layers]
  int vocab = 0;               // V [vocab_size]
  float rms_eps = 0;           // [rms_norm_eps]
  float mla_norm_eps = 1e-6f;  // of the two MLA low-rank norms; carried by no configuration field

  int kda_heads = 0;            // H [linear_attn_config.num_heads]
  int kda_head_dim = 0;         // D [linear_attn_config.head_dim]
  int conv_taps = 0;            // K [short_conv_kernel_size]
  float decay_lower_bound = 0;  // [gate_lower_bound], negative

  int mla_heads = 0;  // Hn [num_attention_heads]
  int q_rank = 0;     // [q_lora_rank]
  int kv_rank = 0;    // [kv_lora_rank]
  int nope_dim = 0;   // [qk_nope_head_dim]
  int rope_dim = 0;   // [qk_rope_head_dim]; never rotated
  int v_dim = 0;      // [v_head_dim]

  int experts = 0;         // N [num_experts]
  int top_k = 0;           // k [num_experts_per_token]
  int shared_experts = 0;  // [num_shared_experts]
  int latent = 0;          // L [routed_expert_hidden_size]
  int expert_width = 0;    // I [moe_intermediate_size]
  float routed_scale = 0;  // [routed_scaling_factor]

  int dense_layers = 0;        // [first_k_dense_replace]: layers 0..dense_layers-1 have a dense MLP
  int dense_width = 0;         // [intermediate_size]
  int residual_block = 0;      // [attn_res_block_size]
  float situ_beta = 0;         // b1 [activation_situ_beta]
  float situ_linear_beta = 0;  // b2 [activation_situ_linear_beta]

  std::vector<Attention> attention;  // per layer, zero-based

  bool moe(int layer) const { return layer >= dense_layers; }
  int kda_width() const { return kda_heads * kda_head_dim; }
  int q_head_dim() const { return nope_dim + rope_dim; }
  int shared_width() const { return shared_experts * expert_width; }
};

// Parses the released nested layout or the flat one. kUsage naming `file` and every missing,
// mistyped or out-of-range field at once; a field named twice is refused. Each field is looked up
// in its own object only.
Result<ModelConfig> parse_model_config(std::string_view json, const std::string& file);

}  // namespace k3
