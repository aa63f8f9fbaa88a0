#include "common/checkpoint/trunk_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "common/checkpoint/checkpoint.h"
#include "tests/unit/common/checkpoint/released_config.h"
#include "tests/unit/support/reference_data.h"

namespace k3 {
namespace {

using ::testing::ElementsAre;

ModelConfig released() {
  return parse_model_config(test::released_config().dump(), "config.json").value();
}

std::vector<std::string> names_of_layer(const std::vector<TrunkTensor>& order, int layer) {
  const std::string prefix = "language_model.model.layers." + std::to_string(layer) + ".";
  std::vector<std::string> names;
  for (const TrunkTensor& tensor : order) {
    if (tensor.layer == layer) names.push_back(tensor.name.substr(prefix.size()));
  }
  return names;
}

TEST(TrunkOrder, HasEveryTensorOfTheReleasedModel) {
  // 2,460 tensors in the released headers are neither experts nor vision; one is the embedding.
  const ModelConfig config = released();
  EXPECT_EQ(trunk_order(config).size(), 2459u);
  EXPECT_EQ((config.layers - config.dense_layers) * config.experts * kExpertParts, 494'592);
}

TEST(TrunkOrder, SizesAddUpToTheReleasedBytes) {
  std::map<int, std::uint64_t> bytes;
  for (const TrunkTensor& tensor : trunk_order(released())) {
    // Stored in fp32 in the released shards; A_log counts one value per head here.
    const bool fp32 = tensor.name.ends_with("A_log") || tensor.name.ends_with("dt_bias") ||
                      tensor.name.ends_with("conv1d.weight") ||
                      tensor.name.ends_with("o_norm.weight") ||
                      tensor.name.ends_with("e_score_correction_bias");
    bytes[tensor.layer] += std::uint64_t{tensor.rows} * tensor.cols * (fp32 ? 4 : 2);
  }
  constexpr std::uint64_t kALogPadding = (128 - 96) * 4;
  EXPECT_EQ(bytes[0] + kALogPadding, 2'341'213'184u);
  EXPECT_EQ(bytes[1] + kALogPadding, 1'267'744'256u);
  EXPECT_EQ(bytes[3], 844'335'616u);
}

TEST(TrunkOrder, KdaAndDenseLayerInOrderOfUse) {
  EXPECT_THAT(
      names_of_layer(trunk_order(released()), 0),
      ElementsAre("self_attention_res_norm.weight", "self_attention_res_proj.weight",
                  "input_layernorm.weight", "self_attn.q_proj.weight", "self_attn.q_conv1d.weight",
                  "self_attn.k_proj.weight", "self_attn.k_conv1d.weight", "self_attn.v_proj.weight",
                  "self_attn.v_conv1d.weight", "self_attn.f_a_proj.weight",
                  "self_attn.f_b_proj.weight", "self_attn.dt_bias", "self_attn.A_log",
                  "self_attn.b_proj.weight", "self_attn.g_proj.weight", "self_attn.o_norm.weight",
                  "self_attn.o_proj.weight", "mlp_res_norm.weight", "mlp_res_proj.weight",
                  "post_attention_layernorm.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight",
                  "mlp.down_proj.weight"));
}

TEST(TrunkOrder, MlaAndMoeLayerInOrderOfUse) {
  EXPECT_THAT(names_of_layer(trunk_order(released()), 3),
              ElementsAre("self_attention_res_norm.weight", "self_attention_res_proj.weight",
                          "input_layernorm.weight", "self_attn.q_a_proj.weight",
                          "self_attn.q_a_layernorm.weight", "self_attn.q_b_proj.weight",
                          "self_attn.kv_a_proj_with_mqa.weight", "self_attn.kv_a_layernorm.weight",
                          "self_attn.kv_b_proj.weight", "self_attn.g_proj.weight",
                          "self_attn.o_proj.weight", "mlp_res_norm.weight", "mlp_res_proj.weight",
                          "post_attention_layernorm.weight", "block_sparse_moe.gate.weight",
                          "block_sparse_moe.gate.e_score_correction_bias",
                          "block_sparse_moe.routed_expert_down_proj.weight",
                          "block_sparse_moe.shared_experts.gate_proj.weight",
                          "block_sparse_moe.shared_experts.up_proj.weight",
                          "block_sparse_moe.shared_experts.down_proj.weight",
                          "block_sparse_moe.routed_expert_norm.weight",
                          "block_sparse_moe.routed_expert_up_proj.weight"));
}

TEST(TrunkOrder, RolesRiseWithinALayer) {
  const std::vector<TrunkTensor> order = trunk_order(released());
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i].layer == order[i - 1].layer) {
      EXPECT_LT(order[i - 1].role, order[i].role) << order[i].name;
    } else if (order[i].layer >= 0) {
      EXPECT_EQ(order[i].layer, order[i - 1].layer + 1) << order[i].name;
    }
  }
}

TEST(TrunkOrder, EndsWithTheHead) {
  const std::vector<TrunkTensor> order = trunk_order(released());
  const std::uint32_t head = first_head_tensor(order);
  ASSERT_EQ(head, order.size() - 4);
  EXPECT_EQ(order[head].name, "language_model.model.output_attn_res_norm.weight");
  EXPECT_EQ(order[head + 1].name, "language_model.model.output_attn_res_proj.weight");
  EXPECT_EQ(order[head + 2].name, "language_model.model.norm.weight");
  EXPECT_EQ(order[head + 3].name, "language_model.lm_head.weight");
  EXPECT_EQ(order[head + 3].rows, 163840u);
  EXPECT_EQ(order[head + 3].cols, 7168u);
  for (std::uint32_t i = 0; i < head; ++i) EXPECT_GE(order[i].layer, 0) << order[i].name;
}

TEST(TrunkOrder, OnlyTheLatentToHeadsMatrixIsGroupedByHead) {
  for (const TrunkTensor& tensor : trunk_order(released())) {
    const std::uint32_t group = tensor.role == TrunkRole::kMlaKvb ? 128 + 128 : 1;
    EXPECT_EQ(tensor.row_group, group) << tensor.name;
    EXPECT_EQ(tensor.rows % tensor.row_group, 0u) << tensor.name;
  }
}

TEST(TrunkOrder, ALogHasOneValuePerHead) {
  for (const TrunkTensor& tensor : trunk_order(released())) {
    if (tensor.role != TrunkRole::kKdaALog) continue;
    EXPECT_EQ(tensor.cols, 96u) << tensor.name;
  }
}

// The oracle's own list of weights has the same matrices under the same names (with `_` for `.`),
// but for the MoE part, which it names otherwise.
TEST(TrunkOrder, ShapesAgreeWithTheOracle) {
  K3_REFERENCE_OR_SKIP(reference);
  std::ifstream oracle_file(reference / "ref_k3.json");
  std::ifstream list_file(reference / "tiny_k3.json");
  const auto oracle = nlohmann::json::parse(oracle_file);
  const auto list = nlohmann::json::parse(list_file)["tensors"];
  const ModelConfig config = parse_model_config(oracle["config"].dump(), "ref_k3.json").value();
  int compared = 0;
  for (const TrunkTensor& tensor : trunk_order(config)) {
    if (tensor.name.find("block_sparse_moe") != std::string::npos) continue;
    std::string name = tensor.name;
    for (const std::string prefix : {"language_model.model.", "language_model."}) {
      if (name.starts_with(prefix)) name = name.substr(prefix.size());
    }
    for (char& c : name) c = c == '.' ? '_' : c;
    ASSERT_TRUE(list.contains(name)) << name;
    const std::vector<std::uint32_t> shape = list[name]["shape"];
    EXPECT_EQ(tensor.cols, shape.back()) << name;
    EXPECT_EQ(std::uint64_t{tensor.rows} * tensor.cols, list[name]["numel"]) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 13 * 6 + 9 * 14 + 4 * 8 + 3 + 4);
}

}  // namespace
}  // namespace k3
