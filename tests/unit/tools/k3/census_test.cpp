#include "tools/k3/census.h"

#include <gtest/gtest.h>

#include "tests/unit/support/temp_dir.h"
#include "tests/unit/support/tiny_checkpoint.h"

namespace k3::cli {
namespace {

Tally tally(const Census& census, TensorClass tensor_class) {
  return census.classes[static_cast<std::size_t>(tensor_class)];
}

Census census_of(const test::TinyOptions& options, std::optional<int> layers = std::nullopt) {
  const test::TempDir dir;
  write_tiny_checkpoint(options, dir.path());
  return take_census(Checkpoint::open(dir.path(), {.layers = layers}).value());
}

TEST(Census, ClassifiesByName) {
  const std::string layer = "language_model.model.layers.3.";
  EXPECT_EQ(class_of(layer + "block_sparse_moe.experts.5.w1.weight_scale"),
            TensorClass::kRoutedExperts);
  EXPECT_EQ(class_of(layer + "block_sparse_moe.shared_experts.up_proj.weight"),
            TensorClass::kSharedExperts);
  EXPECT_EQ(class_of(layer + "self_attn.A_log"), TensorClass::kAttention);
  EXPECT_EQ(class_of(layer + "self_attention_res_norm.weight"), TensorClass::kOther);
  EXPECT_EQ(class_of(layer + "block_sparse_moe.gate.weight"), TensorClass::kOther);
  EXPECT_EQ(class_of(layer + "mlp.up_proj.weight"), TensorClass::kOther);
  EXPECT_EQ(class_of("language_model.model.embed_tokens.weight"), TensorClass::kEmbeddingAndHead);
  EXPECT_EQ(class_of("language_model.lm_head.weight"), TensorClass::kEmbeddingAndHead);
  EXPECT_EQ(class_of("language_model.model.norm.weight"), TensorClass::kOther);
}

TEST(Census, CountsFourBitWeightsAndNotTheirScales) {
  const Census census = census_of({.experts = 12, .latent = 32, .expert_width = 64});
  const Tally routed = tally(census, TensorClass::kRoutedExperts);
  constexpr std::uint64_t kExperts = 3 * 12;  // three MoE layers
  constexpr std::uint64_t kWeights = 3 * 32 * 64;
  EXPECT_EQ(routed.tensors, kExperts * 6);
  EXPECT_EQ(routed.parameters, kExperts * kWeights);
  EXPECT_EQ(routed.bytes, kExperts * (kWeights / 2 + kWeights / 32));
}

TEST(Census, CountsTheOtherClasses) {
  const Census census = census_of({.hidden = 64, .vocab = 96, .expert_width = 64});
  const Tally shared = tally(census, TensorClass::kSharedExperts);
  EXPECT_EQ(shared.tensors, 3u * 3);
  EXPECT_EQ(shared.parameters, 3u * 3 * (2 * 64) * 64);
  EXPECT_EQ(shared.bytes, shared.parameters * 2);
  const Tally ends = tally(census, TensorClass::kEmbeddingAndHead);
  EXPECT_EQ(ends.tensors, 2u);
  EXPECT_EQ(ends.parameters, 2u * 96 * 64);
  EXPECT_EQ(tally(census, TensorClass::kAttention).tensors, 2u * 14 + 2 * 8);
  EXPECT_EQ(census.unused.tensors, 2u);
  EXPECT_EQ(census.unused.bytes, 2u * (4 * 6 + 3 * 5));
}

TEST(Census, TotalIsEveryTensorWritten) {
  const test::TempDir dir;
  const test::TinyCheckpoint written = test::make_tiny_checkpoint({.scattered = true});
  write_tiny_checkpoint(written, dir.path());
  const Census census = take_census(Checkpoint::open(dir.path(), {}).value());
  Tally expected;
  for (const test::TinyTensor& tensor : written.tensors) {
    expected += {.tensors = 1, .bytes = tensor.data.size()};
  }
  EXPECT_EQ(census.total().tensors + census.unused.tensors, expected.tensors);
  EXPECT_EQ(census.total().bytes + census.unused.bytes, expected.bytes);
}

TEST(Census, CountsOnlyTheLayersInUse) {
  const Census census = census_of({.single_file = true}, 2);
  EXPECT_EQ(tally(census, TensorClass::kRoutedExperts).tensors, 12u * 6);
  EXPECT_EQ(tally(census, TensorClass::kAttention).tensors, 2u * 14);
  EXPECT_GT(census.unused.tensors, 2u * 12 * 6);
}

}  // namespace
}  // namespace k3::cli
