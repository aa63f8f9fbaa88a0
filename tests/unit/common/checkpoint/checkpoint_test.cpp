#include "common/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/common/checkpoint/checkpoint_support.h"
#include "tests/unit/support/reference_data.h"

namespace k3 {
namespace {

using test::make_tiny_checkpoint;
using test::opened;
using test::part_name;
using test::refusal;
using test::TempDir;
using test::text_of_file;
using test::TinyCheckpoint;
using test::TinyOptions;
using test::write_tiny_checkpoint;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// The bytes of a tensor as a reader of `place` gets them.
std::string stored(const Checkpoint& checkpoint, const TensorPlace& place) {
  return text_of_file(checkpoint.shards()[place.shard].path).substr(place.offset, place.bytes);
}

// Every tensor is found where its bytes are, in every layout.
void expect_every_tensor_found(const TinyOptions& options) {
  const TempDir dir;
  const TinyCheckpoint written = make_tiny_checkpoint(options);
  write_tiny_checkpoint(written, dir.path());
  const Checkpoint checkpoint = opened(dir.path());
  std::vector<std::string> names;
  for (const test::TinyTensor& tensor : written.tensors) {
    if (!tensor.name.starts_with("language_model.")) continue;
    names.push_back(tensor.name);
    const TensorPlace* const place = checkpoint.find(tensor.name);
    ASSERT_NE(place, nullptr) << tensor.name;
    EXPECT_EQ(name_of(place->dtype), tensor.dtype) << tensor.name;
    EXPECT_EQ(checkpoint.shards()[place->shard].path.filename(), written.shard_name(tensor.shard));
    EXPECT_TRUE(stored(checkpoint, *place) == tensor.data) << tensor.name;
  }
  std::sort(names.begin(), names.end());
  std::vector<std::string> listed;
  for (const auto& tensor : checkpoint.tensors()) listed.push_back(tensor.name);
  EXPECT_EQ(listed, names);
}

TEST(Checkpoint, FindsEveryTensorOfTheReleasedLayout) { expect_every_tensor_found({}); }

TEST(Checkpoint, FindsEveryTensorScatteredOverShards) {
  expect_every_tensor_found({.seed = 3, .scattered = true});
}

TEST(Checkpoint, FindsEveryTensorOfASingleFile) {
  expect_every_tensor_found({.f32_small_tensors = true, .pad_a_log = false, .single_file = true});
}

TEST(Checkpoint, FindsEveryTensorWithMoreThanTenLayersAndExperts) {
  expect_every_tensor_found({.layers = 12, .mla_layers = {1, 2, 12}, .dense_layers = 0});
}

TEST(Checkpoint, ExpertPartsAreInSlotOrder) {
  const TempDir dir;
  const TinyCheckpoint written = make_tiny_checkpoint({});
  write_tiny_checkpoint(written, dir.path());
  const Checkpoint checkpoint = opened(dir.path());
  // In string order expert 10 lies before expert 2.
  for (const int expert : {0, 2, 10, 11}) {
    const std::vector<TensorPlace> places = checkpoint.expert(3, expert);
    std::vector<std::string> data;
    for (const TensorPlace& place : places) data.push_back(stored(checkpoint, place));
    TinyCheckpoint copy = written;
    std::vector<std::string> expected;
    for (const std::string part : {"w1.weight_packed", "w1.weight_scale", "w2.weight_packed",
                                   "w2.weight_scale", "w3.weight_packed", "w3.weight_scale"}) {
      expected.push_back(copy.at(part_name(3, expert, part)).data);
    }
    EXPECT_EQ(data, expected) << expert;
  }
  EXPECT_LT(checkpoint.expert(3, 10)[0].offset, checkpoint.expert(3, 2)[0].offset);
}

TEST(Checkpoint, KnowsExpertSizes) {
  ModelConfig config;
  config.latent = 3584;
  config.expert_width = 3072;
  EXPECT_EQ(expert_bytes(config), 17'547'264u);
  EXPECT_EQ(expert_part_bytes(config, ExpertPart::kW1Packed), 3072u * 1792);
  EXPECT_EQ(expert_part_bytes(config, ExpertPart::kW2Packed), 3584u * 1536);
  EXPECT_EQ(expert_part_bytes(config, ExpertPart::kW2Scale), 3584u * 96);
  EXPECT_EQ(expert_part_bytes(config, ExpertPart::kW3Scale), 3072u * 112);
  EXPECT_EQ(expert_tensor_name(3, 17, ExpertPart::kW2Scale), part_name(3, 17, "w2.weight_scale"));
}

TEST(Checkpoint, IgnoresWhatIsNotTheLanguageModel) {
  const TempDir dir;
  write_tiny_checkpoint(TinyOptions{}, dir.path());
  const Checkpoint checkpoint = opened(dir.path());
  std::vector<std::string> unused;
  for (const auto& tensor : checkpoint.unused_tensors()) unused.push_back(tensor.name);
  EXPECT_THAT(unused, ElementsAre("mm_projector.linear.weight", "vision_tower.patch_embed.weight"));
  EXPECT_EQ(checkpoint.find("mm_projector.linear.weight"), nullptr);
}

TEST(Checkpoint, OpensPathsWithSpacesAndAccents) {
  const TempDir dir;
  const std::filesystem::path odd = dir.path() / "mod\xc3\xa8le \xe6\xa8\xa1\xe5\x9e\x8b  (1)";
  write_tiny_checkpoint(TinyOptions{}, odd);
  EXPECT_EQ(opened(odd).directory(), odd);
}

TEST(Checkpoint, KeepsTheConfigurationVerbatim) {
  const TempDir dir;
  const TinyCheckpoint written = make_tiny_checkpoint({});
  write_tiny_checkpoint(written, dir.path());
  const Checkpoint checkpoint = opened(dir.path());
  EXPECT_EQ(checkpoint.config_json(), written.config_json);
  EXPECT_EQ(checkpoint.config().layers, 4);
  EXPECT_EQ(checkpoint.model_layers(), 4);
}

TEST(Checkpoint, OpensTheFirstLayersOfAPartialDownload) {
  const TempDir dir;
  write_tiny_checkpoint(TinyOptions{}, dir.path());
  std::filesystem::remove(dir.path() / "model-00003-of-00006.safetensors");
  std::filesystem::resize_file(dir.path() / "model-00004-of-00006.safetensors", 50);
  EXPECT_EQ(refusal(dir.path()).code, ErrorCode::kWeights);
  EXPECT_THAT(refusal(dir.path(), 3).message, HasSubstr("model-00003-of-00006.safetensors"));

  const Checkpoint checkpoint = opened(dir.path(), 2);
  EXPECT_EQ(checkpoint.config().layers, 2);
  EXPECT_EQ(checkpoint.config().attention.size(), 2u);
  EXPECT_EQ(checkpoint.model_layers(), 4);
  EXPECT_EQ(checkpoint.shards().size(), 3u);  // two layers and the top level
  EXPECT_NE(checkpoint.find(part_name(1, 0, "w1.weight_packed")), nullptr);
  EXPECT_EQ(checkpoint.find(part_name(2, 0, "w1.weight_packed")), nullptr);
  EXPECT_EQ(checkpoint.find("language_model.model.layers.2.input_layernorm.weight"), nullptr);
}

TEST(Checkpoint, TensorsOfOtherLayersAreUnused) {
  const TempDir dir;
  write_tiny_checkpoint(TinyOptions{.single_file = true}, dir.path());
  const Checkpoint checkpoint = opened(dir.path(), 3);
  const auto of_layer_3 = HasSubstr("language_model.model.layers.3.");
  std::size_t unused_experts = 0;
  for (const auto& tensor : checkpoint.unused_tensors()) {
    if (!tensor.name.starts_with("language_model.")) continue;
    EXPECT_THAT(tensor.name, of_layer_3);
    unused_experts += tensor.place->dtype == DType::kU8 ? 1 : 0;
  }
  EXPECT_EQ(unused_experts, 12u * 6);
  for (const auto& tensor : checkpoint.tensors()) EXPECT_THAT(tensor.name, Not(of_layer_3));
}

TEST(Checkpoint, DenseLayersOnlyNeedNoExperts) {
  const TempDir dir;
  write_tiny_checkpoint(TinyOptions{.dense_layers = 2}, dir.path());
  const Checkpoint checkpoint = opened(dir.path(), 1);
  EXPECT_EQ(checkpoint.config().dense_layers, 1);
  for (const auto& tensor : checkpoint.tensors()) EXPECT_NE(tensor.place->dtype, DType::kU8);
}

TEST(Checkpoint, OpensTheReferenceCheckpoints) {
  K3_REFERENCE_OR_SKIP(reference);
  const Checkpoint tiny = opened(reference / "tiny_checkpoint");
  EXPECT_EQ(tiny.tensors().size(), 916u);
  EXPECT_TRUE(tiny.unused_tensors().empty());
  const Checkpoint small = opened(reference / "small_released_layout");
  EXPECT_EQ(small.shards().size(), 11u);
  EXPECT_EQ(small.unused_tensors().size(), 2u);
  // Nine layers of six common tensors; 6 KDA of 14, 3 MLA of 8, 1 dense of 3, 8 MoE of 8; 12
  // experts of 6 in each MoE layer; five at the top.
  EXPECT_EQ(small.tensors().size(), 9u * 6 + 6 * 14 + 3 * 8 + 3 + 8 * 8 + 8 * 12 * 6 + 5);
}

TEST(Checkpoint, OpensTheDemoModel) {
  const Checkpoint demo = opened(test::source_dir() / "launch/demo-model");
  EXPECT_EQ(demo.config().layers, 7);
  EXPECT_EQ(demo.config().experts, 32);
}

}  // namespace
}  // namespace k3
