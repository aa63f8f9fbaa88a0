#include "common/checkpoint/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/unit/common/checkpoint/released_config.h"
#include "tests/unit/support/reference_data.h"

namespace k3 {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Result<ModelConfig> parse(const json& config) {
  return parse_model_config(config.dump(), "dir/config.json");
}

// The message of a refusal; empty when the configuration is accepted.
std::string refusal(const json& config) {
  const Result<ModelConfig> parsed = parse(config);
  if (parsed) return "";
  EXPECT_EQ(parsed.error().code, ErrorCode::kUsage);
  EXPECT_THAT(parsed.error().message, HasSubstr("dir/config.json"));
  return parsed.error().message;
}

// The released configuration with one field changed.
json with(const std::string& pointer, const json& value) {
  json config = test::released_config();
  config[json::json_pointer("/text_config/" + pointer)] = value;
  return config;
}

json flat_config() {
  return {{"hidden_size", 128},
          {"num_hidden_layers", 13},
          {"vocab_size", 256},
          {"rms_norm_eps", 1e-5},
          {"kda_num_heads", 4},
          {"kda_head_dim", 16},
          {"short_conv_kernel_size", 4},
          {"gate_lower_bound", -5},
          {"num_attention_heads", 4},
          {"q_lora_rank", 64},
          {"kv_lora_rank", 32},
          {"qk_nope_head_dim", 24},
          {"qk_rope_head_dim", 8},
          {"v_head_dim", 16},
          {"mla_use_output_gate", true},
          {"num_experts", 8},
          {"num_experts_per_token", 2},
          {"num_shared_experts", 2},
          {"routed_expert_hidden_size", 64},
          {"moe_intermediate_size", 48},
          {"routed_scaling_factor", 1},
          {"moe_renormalize", true},
          {"latent_moe_use_norm", true},
          {"first_k_dense_replace", 1},
          {"intermediate_size", 96},
          {"attn_res_block_size", 3},
          {"situ_beta", 4},
          {"situ_linear_beta", 25},
          {"full_attn_layers", {4, 8, 12, 13}}};
}

TEST(ModelConfig, ReadsTheReleasedLayout) {
  const Result<ModelConfig> config = parse(test::released_config());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->hidden, 7168);
  EXPECT_EQ(config->layers, 93);
  EXPECT_EQ(config->vocab, 163840);
  EXPECT_FLOAT_EQ(config->rms_eps, 1e-5F);
  EXPECT_FLOAT_EQ(config->mla_norm_eps, 1e-6F);
  EXPECT_EQ(config->kda_heads, 96);
  EXPECT_EQ(config->kda_head_dim, 128);  // of linear_attn_config, not the head_dim outside it
  EXPECT_EQ(config->conv_taps, 4);
  EXPECT_EQ(config->decay_lower_bound, -5.0F);
  EXPECT_EQ(config->mla_heads, 96);
  EXPECT_EQ(config->q_rank, 1536);
  EXPECT_EQ(config->kv_rank, 512);
  EXPECT_EQ(config->nope_dim, 128);
  EXPECT_EQ(config->rope_dim, 64);
  EXPECT_EQ(config->v_dim, 128);
  EXPECT_EQ(config->experts, 896);
  EXPECT_EQ(config->top_k, 16);
  EXPECT_EQ(config->shared_experts, 2);
  EXPECT_EQ(config->latent, 3584);
  EXPECT_EQ(config->expert_width, 3072);
  EXPECT_EQ(config->routed_scale, 2.5F);
  EXPECT_EQ(config->dense_layers, 1);
  EXPECT_EQ(config->dense_width, 33792);
  EXPECT_EQ(config->residual_block, 12);
  EXPECT_EQ(config->situ_beta, 4.0F);
  EXPECT_EQ(config->situ_linear_beta, 25.0F);
}

TEST(ModelConfig, LayerListIsOneBased) {
  const Result<ModelConfig> config = parse(test::released_config());
  ASSERT_TRUE(config) << config.error().message;
  const std::vector<Attention>& attention = config->attention;
  ASSERT_EQ(attention.size(), 93u);
  EXPECT_EQ(std::count(attention.begin(), attention.end(), Attention::kKda), 69);
  EXPECT_EQ(std::count(attention.begin(), attention.end(), Attention::kMla), 24);
  EXPECT_EQ(attention[2], Attention::kKda);
  EXPECT_EQ(attention[3], Attention::kMla);
  EXPECT_EQ(attention[4], Attention::kKda);
  EXPECT_EQ(attention[90], Attention::kKda);
  EXPECT_EQ(attention[91], Attention::kMla);
  EXPECT_EQ(attention[92], Attention::kMla);
}

TEST(ModelConfig, ReadsTheFlatLayout) {
  const Result<ModelConfig> config = parse(flat_config());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->kda_heads, 4);
  EXPECT_EQ(config->kda_head_dim, 16);
  EXPECT_EQ(config->expert_width, 48);  // not a multiple of 32: fine for a model held in memory
  EXPECT_EQ(config->decay_lower_bound, -5.0F);
  EXPECT_EQ(config->situ_linear_beta, 25.0F);
  EXPECT_EQ(config->attention[12], Attention::kMla);
}

TEST(ModelConfig, NamesEveryMissingField) {
  const json linear = {"num_heads",        "head_dim",           "short_conv_kernel_size",
                       "gate_lower_bound", "use_full_rank_gate", "full_attn_layers"};
  json empty = {{"text_config", {{"linear_attn_config", json::object()}}}};
  const std::string all = refusal(empty);
  const json released = test::released_config();
  for (const auto& [name, value] : released["text_config"].items()) {
    if (name == "head_dim" || name == "linear_attn_config") continue;
    EXPECT_THAT(all, HasSubstr("text_config." + name + ": missing"));
  }
  for (const std::string name : linear) {
    EXPECT_THAT(all, HasSubstr("text_config.linear_attn_config." + name + ": missing"));
  }
}

TEST(ModelConfig, EachFieldIsNeeded) {
  const json released = test::released_config();
  for (const auto& [name, value] : released["text_config"].items()) {
    if (name == "head_dim") continue;
    json config = released;
    config["text_config"].erase(name);
    EXPECT_THAT(refusal(config), HasSubstr("text_config." + name)) << name;
  }
  for (const auto& [name, value] : released["text_config"]["linear_attn_config"].items()) {
    if (name == "kda_layers") continue;
    json config = released;
    config["text_config"]["linear_attn_config"].erase(name);
    EXPECT_THAT(refusal(config), HasSubstr("linear_attn_config." + name)) << name;
  }
  const json flat = flat_config();
  for (const auto& [name, value] : flat.items()) {
    json config = flat;
    config.erase(name);
    EXPECT_THAT(refusal(config), HasSubstr(name + ": missing")) << name;
  }
}

// A field of the same name in another object does not stand in.
TEST(ModelConfig, LooksFieldsUpInTheirOwnObject) {
  json config = test::released_config();
  config["text_config"]["linear_attn_config"].erase("head_dim");
  config["head_dim"] = 128;
  EXPECT_THAT(refusal(config), HasSubstr("text_config.linear_attn_config.head_dim: missing"));
  config = test::released_config();
  config["text_config"].erase("hidden_size");
  config["hidden_size"] = 7168;
  EXPECT_THAT(refusal(config), HasSubstr("text_config.hidden_size: missing"));
}

TEST(ModelConfig, RefusesOtherTypes) {
  EXPECT_THAT(refusal(with("hidden_size", 7168.0)), HasSubstr("hidden_size: 7168.0"));
  EXPECT_THAT(refusal(with("hidden_size", true)), HasSubstr("hidden_size: true"));
  EXPECT_THAT(refusal(with("hidden_size", "7168")), HasSubstr("hidden_size: \"7168\""));
  EXPECT_THAT(refusal(with("hidden_size", nullptr)), HasSubstr("hidden_size: null"));
  EXPECT_THAT(refusal(with("hidden_size", json::array({7168}))), HasSubstr("hidden_size: a list"));
  EXPECT_THAT(refusal(with("rms_norm_eps", true)), HasSubstr("rms_norm_eps: true"));
  EXPECT_THAT(refusal(with("rms_norm_eps", "1e-5")), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(refusal(with("moe_renormalize", 1)), HasSubstr("moe_renormalize: 1"));
  EXPECT_THAT(refusal(with("num_expert_group", 1.0)), HasSubstr("num_expert_group: 1.0"));
  EXPECT_THAT(refusal(with("linear_attn_config", 3)),
              AllOf(HasSubstr("linear_attn_config: 3, expected an object"),
                    HasSubstr("linear_attn_config.num_heads: missing")));
}

TEST(ModelConfig, AcceptsAnIntegerForARealNumber) {
  const Result<ModelConfig> config = parse(with("routed_scaling_factor", 3));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->routed_scale, 3.0F);
}

TEST(ModelConfig, RefusesNumbersOutOfRange) {
  EXPECT_THAT(refusal(with("hidden_size", 0)), HasSubstr("hidden_size: 0"));
  EXPECT_THAT(refusal(with("hidden_size", -128)), HasSubstr("hidden_size: -128"));
  EXPECT_THAT(refusal(with("vocab_size", 18446744073709551615u)),
              HasSubstr("vocab_size: 18446744073709551615"));
  EXPECT_THAT(refusal(with("num_hidden_layers", 4294967389)),
              HasSubstr("num_hidden_layers: 4294967389"));
  EXPECT_THAT(refusal(with("rms_norm_eps", 0)), HasSubstr("rms_norm_eps: 0"));
  EXPECT_THAT(refusal(with("rms_norm_eps", 1e300)), HasSubstr("rms_norm_eps: 1e+300"));
  EXPECT_THAT(refusal(with("linear_attn_config/gate_lower_bound", 5.0)),
              HasSubstr("gate_lower_bound: 5.0"));
  EXPECT_THAT(refusal(with("first_k_dense_replace", 94)),
              AllOf(HasSubstr("first_k_dense_replace: 94"), HasSubstr("0..93")));
}

TEST(ModelConfig, RefusesMoreChosenExpertsThanThereAre) {
  EXPECT_THAT(refusal(with("num_experts_per_token", 897)),
              AllOf(HasSubstr("num_experts_per_token: 897"), HasSubstr("896")));
  EXPECT_EQ(refusal(with("num_experts_per_token", 896)), "");
}

TEST(ModelConfig, RefusesOtherVariants) {
  for (const auto& [field, value] : std::vector<std::pair<std::string, json>>{
           {"hidden_act", "silu"},
           {"moe_router_activation_func", "softmax"},
           {"mla_use_nope", false},
           {"mla_use_output_gate", false},
           {"latent_moe_use_norm", false},
           {"moe_renormalize", false},
           {"num_expert_group", 8},
           {"num_nextn_predict_layers", 1},
           {"tie_word_embeddings", true},
           {"moe_layer_freq", 2},
           {"linear_attn_config/use_full_rank_gate", false},
           {"quantization_config/format", "int4"},
           {"quantization_config/config_groups/group_0/weights/group_size", 16},
           {"quantization_config/config_groups", json::object()}}) {
    EXPECT_THAT(refusal(with(field, value)), HasSubstr(field.substr(field.rfind('/') + 1)))
        << field;
  }
}

TEST(ModelConfig, RefusesBadLayerLists) {
  const std::string mla = "linear_attn_config/full_attn_layers";
  EXPECT_THAT(refusal(with(mla, {0, 4})),
              AllOf(HasSubstr("full_attn_layers: 0"), HasSubstr("1..93")));
  EXPECT_THAT(refusal(with(mla, {4, 94})), HasSubstr("full_attn_layers: 94"));
  EXPECT_THAT(refusal(with(mla, {4, 8, 4})),
              HasSubstr("full_attn_layers: layer 4 is listed twice"));
  EXPECT_THAT(refusal(with(mla, json::array({4.0}))), HasSubstr("full_attn_layers: 4.0"));
  EXPECT_THAT(refusal(with(mla, 4)), HasSubstr("full_attn_layers: 4, expected a list"));
}

TEST(ModelConfig, KdaLayersAreTheOtherLayers) {
  const std::string kda = "linear_attn_config/kda_layers";
  json layers = test::released_config()["text_config"]["linear_attn_config"]["kda_layers"];
  json more = layers;
  more.push_back(4);
  EXPECT_THAT(refusal(with(kda, more)), HasSubstr("kda_layers: layer 4 is in both"));
  json fewer = layers;
  fewer.erase(0);
  EXPECT_THAT(refusal(with(kda, fewer)), HasSubstr("kda_layers: layer 1 is in neither"));
}

TEST(ModelConfig, ReportsSeveralProblemsTogether) {
  json config = with("hidden_size", -1);
  config["text_config"].erase("vocab_size");
  config["text_config"]["linear_attn_config"]["num_heads"] = "96";
  EXPECT_THAT(refusal(config),
              AllOf(HasSubstr("text_config.hidden_size: -1"), HasSubstr("vocab_size: missing"),
                    HasSubstr("linear_attn_config.num_heads: \"96\""), Not(HasSubstr("q_lora"))));
}

TEST(ModelConfig, RefusesWhatIsNotAnObject) {
  for (const std::string text : {"", "{", "[]", "3", "{} {}", "{\"text_config\": [1"}) {
    const Result<ModelConfig> config = parse_model_config(text, "config.json");
    ASSERT_FALSE(config) << text;
    EXPECT_EQ(config.error().code, ErrorCode::kUsage);
    EXPECT_THAT(config.error().message, HasSubstr("config.json"));
  }
}

TEST(ModelConfig, RefusesANumberThatNoDoubleHolds) {
  const Result<ModelConfig> config =
      parse_model_config(R"({"text_config": {"rms_norm_eps": 1e999}})", "dir/config.json");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::kUsage);
  EXPECT_THAT(config.error().message, AllOf(HasSubstr("dir/config.json"), HasSubstr("1e999")));
}

TEST(ModelConfig, RefusesAFieldNamedTwiceInOneObject) {
  const std::string text = test::released_config().dump();
  ASSERT_TRUE(parse_model_config(text, "dir/config.json"));
  for (const std::string field : {"vocab_size", "text_config", "num_heads", "group_size"}) {
    std::string doubled = text;
    const std::size_t at = doubled.find('"' + field + '"');
    ASSERT_NE(at, std::string::npos) << field;
    doubled.insert(at, '"' + field + "\": 1, ");
    const Result<ModelConfig> config = parse_model_config(doubled, "dir/config.json");
    ASSERT_FALSE(config) << field;
    EXPECT_EQ(config.error().code, ErrorCode::kUsage);
    EXPECT_THAT(config.error().message, AllOf(HasSubstr("dir/config.json"), HasSubstr(field)));
  }
}

TEST(ModelConfig, DeepNestingIsRefusedWithoutRecursion) {
  std::string text = "{\"text_config\": {\"hidden_size\": ";
  text.append(1'000'000, '[').append(1'000'000, ']').append("}}");
  const Result<ModelConfig> config = parse_model_config(text, "config.json");
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message, HasSubstr("hidden_size: a list"));
}

std::string reference_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return (std::stringstream() << file.rdbuf()).str();
}

TEST(ModelConfig, RefusesTheReferenceFaults) {
  K3_REFERENCE_OR_SKIP(reference);
  const auto refused = [&](const std::string& name) {
    const std::string text = reference_text(reference / "cfg" / name);
    const Result<ModelConfig> config = parse_model_config(text, name);
    return config ? std::string() : config.error().message;
  };
  EXPECT_THAT(refused("no_layermap.json"), HasSubstr("full_attn_layers: missing"));
  EXPECT_THAT(refused("bad_layer_index.json"),
              AllOf(HasSubstr("full_attn_layers"), HasSubstr("999")));
  EXPECT_THAT(refused("bad_topk.json"),
              AllOf(HasSubstr("num_experts_per_token"), HasSubstr("128"), HasSubstr("8")));
}

TEST(ModelConfig, AcceptsTheReferenceConfigurations) {
  K3_REFERENCE_OR_SKIP(reference);
  const json oracle = json::parse(reference_text(reference / "ref_k3.json"));
  EXPECT_EQ(refusal(oracle["config"]), "");
  const Result<ModelConfig> tiny =
      parse_model_config(reference_text(reference / "tiny_checkpoint/config.json"), "tiny");
  ASSERT_TRUE(tiny) << tiny.error().message;
  EXPECT_EQ(tiny->expert_width, 64);
  const Result<ModelConfig> small =
      parse_model_config(reference_text(reference / "small_released_layout/config.json"), "small");
  ASSERT_TRUE(small) << small.error().message;
  EXPECT_EQ(small->layers, 9);
  EXPECT_EQ(small->attention[7], Attention::kMla);
  EXPECT_EQ(small->attention[8], Attention::kMla);
}

}  // namespace
}  // namespace k3
