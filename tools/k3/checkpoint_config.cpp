// Named shapes as released configurations, and changes to them; see checkpoint_config.h.
#include "tools/k3/checkpoint_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "common/base/file.h"
#include "common/checkpoint/model_config.h"

namespace k3::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxLayers = 1024;
constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;

// The numbers in which the named shapes differ.
struct NamedShape {
  std::string_view name;
  int vocab, hidden, layers;
  int kda_heads, kda_head_dim;
  int mla_heads, q_rank, kv_rank, nope_dim, rope_dim, v_dim;
  int experts, top_k, latent, expert_width;
  int dense_width, residual_block;
};
constexpr std::array<NamedShape, 3> kShapes = {{
    {"tiny", 256, 128, 9, 4, 16, 4, 64, 32, 24, 8, 16, 12, 4, 64, 96, 160, 4},
    {"demo", 4096, 192, 7, 6, 32, 6, 96, 64, 32, 16, 32, 32, 4, 96, 96, 576, 3},
    {"released", 163840, 7168, 93, 96, 128, 96, 1536, 512, 128, 64, 128, 896, 16, 3584, 3072, 33792,
     12},
}};

Json linear_attention(const NamedShape& shape) {
  return {{"full_attn_layers", Json::array()}, {"kda_layers", Json::array()},
          {"num_heads", shape.kda_heads},      {"head_dim", shape.kda_head_dim},
          {"short_conv_kernel_size", 4},       {"gate_lower_bound", -5.0},
          {"use_full_rank_gate", true}};
}

Json quantization() {
  const Json weights = {{"num_bits", 4},
                        {"type", "float"},
                        {"group_size", 32},
                        {"strategy", "group"},
                        {"symmetric", true},
                        {"dynamic", false},
                        {"scale_dtype", "torch.uint8"}};
  const Json group = {{"format", "mxfp4-pack-quantized"},
                      {"input_activations", nullptr},
                      {"output_activations", nullptr},
                      {"targets", Json::array({"Linear"})},
                      {"weights", weights}};
  return {{"quant_method", "compressed-tensors"},
          {"format", "mxfp4-pack-quantized"},
          {"quantization_status", "compressed"},
          {"config_groups", {{"group_0", group}}}};
}

Json language_model(const NamedShape& shape) {
  return {{"model_type", "kimi_linear"},
          {"architectures", Json::array({"KimiLinearForCausalLM"})},
          {"vocab_size", shape.vocab},
          {"hidden_size", shape.hidden},
          {"intermediate_size", shape.dense_width},
          {"num_hidden_layers", shape.layers},
          {"num_attention_heads", shape.mla_heads},
          {"num_key_value_heads", shape.mla_heads},
          {"hidden_act", "situ"},
          {"activation_situ_beta", 4.0},
          {"activation_situ_linear_beta", 25.0},
          {"rms_norm_eps", 1e-5},
          {"tie_word_embeddings", false},
          {"first_k_dense_replace", 1},
          {"moe_layer_freq", 1},
          {"num_experts", shape.experts},
          {"num_experts_per_token", shape.top_k},
          {"num_shared_experts", 2},
          {"num_expert_group", 1},
          {"topk_group", 1},
          {"topk_method", "noaux_tc"},
          {"use_grouped_topk", true},
          {"moe_router_activation_func", "sigmoid"},
          {"moe_renormalize", true},
          {"routed_scaling_factor", 1.0},
          {"moe_intermediate_size", shape.expert_width},
          {"routed_expert_hidden_size", shape.latent},
          {"latent_moe_use_norm", true},
          {"attn_res_block_size", shape.residual_block},
          {"q_lora_rank", shape.q_rank},
          {"kv_lora_rank", shape.kv_rank},
          {"qk_nope_head_dim", shape.nope_dim},
          {"qk_rope_head_dim", shape.rope_dim},
          {"v_head_dim", shape.v_dim},
          {"mla_use_nope", true},
          {"mla_use_output_gate", true},
          {"num_nextn_predict_layers", 0},
          {"linear_attn_config", linear_attention(shape)},
          {"quantization_config", quantization()}};
}

// Sets the layer count and both lists. MLA layers, one-based, are those of the shape as far as they
// reach, then every fourth and the last.
void fit_layers(Json& text, int layers) {
  Json& linear = text["linear_attn_config"];
  const int shape_layers = text.value("num_hidden_layers", 0);
  const Json known = linear["full_attn_layers"];
  Json mla = Json::array();
  Json kda = Json::array();
  for (int layer = 1; layer <= layers; ++layer) {
    const bool listed = std::find(known.begin(), known.end(), Json(layer)) != known.end();
    const bool beyond = known.empty() || layer > shape_layers;
    const bool is_mla = beyond ? layer % 4 == 0 || layer == layers : listed;
    (is_mla ? mla : kda).push_back(layer);
  }
  text["num_hidden_layers"] = layers;
  linear["full_attn_layers"] = std::move(mla);
  linear["kda_layers"] = std::move(kda);
}

Result<Json> base_config(std::string_view shape) {
  for (const NamedShape& named : kShapes) {
    if (named.name != shape) continue;
    Json config = {{"model_type", "kimi_k3"},
                   {"architectures", Json::array({"KimiK3ForConditionalGeneration"})},
                   {"tie_word_embeddings", false},
                   {"vision_config", {{"model_type", "kimi_k3_vision"}}},
                   {"text_config", language_model(named)}};
    fit_layers(config["text_config"], named.layers);
    return config;
  }
  const Result<std::string> content = read_text_file(shape, kMaxConfigBytes);
  if (!content) {
    return fail(ErrorCode::kUsage, "--shape {}: neither tiny, demo, released nor a file ({})",
                shape, content.error().message);
  }
  Json config = Json::parse(*content, nullptr, false);
  if (!config.is_object() || !config.contains("text_config") ||
      !config["text_config"].is_object() ||
      !config["text_config"].value("linear_attn_config", Json()).is_object()) {
    return fail(ErrorCode::kUsage,
                "--shape {}: expected a config.json with text_config.linear_attn_config", shape);
  }
  return config;
}

Status apply(Json& text, const Override& change) {
  const std::size_t equals = change.find('=');
  Json* target = &text;
  std::string_view rest = std::string_view(change).substr(0, equals);
  while (equals != std::string::npos && target != nullptr && !rest.empty()) {
    const std::string key(rest.substr(0, rest.find('.')));
    rest.remove_prefix(std::min(key.size() + 1, rest.size()));
    target = target->is_object() && target->contains(key) ? &(*target)[key] : nullptr;
  }
  if (target == nullptr || target == &text) {
    return fail(ErrorCode::kUsage, "--set {}: expected KEY=VALUE with a field of text_config",
                change);
  }
  const std::string value = change.substr(equals + 1);
  Json parsed = Json::parse(value, nullptr, false);
  *target = parsed.is_discarded() ? Json(value) : std::move(parsed);
  return {};
}

}  // namespace

Result<std::string> checkpoint_config(std::string_view shape, std::optional<int> layers,
                                      const std::vector<Override>& overrides) {
  K3_ASSIGN(Json config, base_config(shape));
  if (layers && (*layers < 1 || *layers > kMaxLayers)) {
    return fail(ErrorCode::kUsage, "--layers {}: expected 1..{}", *layers, kMaxLayers);
  }
  if (layers) fit_layers(config["text_config"], *layers);
  for (const Override& change : overrides) K3_TRY(apply(config["text_config"], change));
  std::string text = config.dump(1) + "\n";
  K3_TRY(parse_model_config(text, fmt::format("the configuration of --shape {}", shape)));
  return text;
}

}  // namespace k3::cli
