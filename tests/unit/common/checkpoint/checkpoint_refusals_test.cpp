// Checkpoints whose tensors or configuration must be refused, each by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "common/checkpoint/checkpoint.h"
#include "tests/unit/common/checkpoint/checkpoint_support.h"

namespace k3 {
namespace {

using nlohmann::json;
using test::kALog;
using test::kRouter;
using test::make_tiny_checkpoint;
using test::opened;
using test::part_name;
using test::refusal;
using test::Refusal;
using test::TempDir;
using test::TinyCheckpoint;
using test::TinyOptions;
using test::weights_refusal;
using test::write_tiny_checkpoint;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Checkpoint, NamesAMissingExpert) {
  TinyCheckpoint checkpoint = make_tiny_checkpoint({});
  const std::string name = part_name(2, 7, "w3.weight_scale");
  checkpoint.erase(name);
  EXPECT_THAT(weights_refusal(checkpoint),
              AllOf(HasSubstr("layer 2"), HasSubstr("expert 7"), HasSubstr(name)));
  for (const std::string other : {"w1.weight_packed", "w1.weight_scale", "w2.weight_packed",
                                  "w2.weight_scale", "w3.weight_packed"}) {
    checkpoint.erase(part_name(2, 7, other));
  }
  EXPECT_THAT(weights_refusal(checkpoint), AllOf(HasSubstr("layer 2"), HasSubstr("expert 7")));
}

TEST(Checkpoint, NamesALayerWithoutAnyExpert) {
  TinyCheckpoint checkpoint = make_tiny_checkpoint({});
  std::erase_if(checkpoint.tensors, [](const test::TinyTensor& tensor) {
    return tensor.name.find("layers.3.block_sparse_moe.experts") != std::string::npos;
  });
  EXPECT_THAT(weights_refusal(checkpoint), AllOf(HasSubstr("layer 3"), HasSubstr("expert 0")));
}

TEST(Checkpoint, EveryTrunkTensorIsNeeded) {
  const TinyCheckpoint whole = make_tiny_checkpoint({});
  for (const test::TinyTensor& tensor : whole.tensors) {
    if (!tensor.name.starts_with("language_model.") || tensor.dtype == "U8") continue;
    TinyCheckpoint checkpoint = whole;
    checkpoint.erase(tensor.name);
    EXPECT_THAT(weights_refusal(checkpoint), HasSubstr("tensor " + tensor.name));
  }
}

TEST(Checkpoint, RefusesAnUnknownLanguageModelTensor) {
  for (const std::string& name :
       {std::string("language_model.model.layers.1.self_attn.k_norm.weight"),
        std::string("language_model.model.layers.4.input_layernorm.weight"),
        std::string("language_model.model.layers.01.input_layernorm.weight"),
        part_name(1, 12, "w1.weight_packed"), part_name(0, 0, "w1.weight_packed"),
        part_name(1, 0, "w4.weight_packed"), part_name(4, 0, "w1.weight_packed"),
        std::string("language_model.model.layers.1.block_sparse_moe.experts.00.w1.weight_packed"),
        std::string(
            "language_model.model.layers.-1.block_sparse_moe.experts.0.w1.weight_packed")}) {
    TinyCheckpoint checkpoint = make_tiny_checkpoint({.single_file = true});
    checkpoint.tensors.push_back({name, "U8", {1}, "x", 0});
    EXPECT_THAT(weights_refusal(checkpoint), HasSubstr(name));
  }
}

TEST(Checkpoint, RefusesAWrongShape) {
  TinyCheckpoint checkpoint = make_tiny_checkpoint({});
  checkpoint.at(kRouter).shape = {64, 12};
  EXPECT_THAT(weights_refusal(checkpoint),
              AllOf(HasSubstr("model-00002-of-00006.safetensors"), HasSubstr(kRouter),
                    HasSubstr("[64, 12]"), HasSubstr("[12, 64]")));
  checkpoint = make_tiny_checkpoint({});
  test::TinyTensor& packed = checkpoint.at(part_name(1, 3, "w1.weight_packed"));
  std::swap(packed.shape[0], packed.shape[1]);
  EXPECT_THAT(weights_refusal(checkpoint),
              AllOf(HasSubstr("experts.3.w1"), HasSubstr("[16, 64]"), HasSubstr("[64, 16]")));
  checkpoint = make_tiny_checkpoint({});
  checkpoint.at("language_model.model.embed_tokens.weight").shape = {64, 96};
  EXPECT_THAT(weights_refusal(checkpoint), HasSubstr("embed_tokens"));
}

TEST(Checkpoint, RefusesAnEmptyTensor) {
  TinyCheckpoint checkpoint = make_tiny_checkpoint({});
  checkpoint.at(kRouter).shape = {0, 64};
  checkpoint.at(kRouter).data.clear();
  EXPECT_THAT(weights_refusal(checkpoint), AllOf(HasSubstr(kRouter), HasSubstr("[0, 64]")));
}

TEST(Checkpoint, RefusesAWrongDtype) {
  TinyCheckpoint checkpoint = make_tiny_checkpoint({});
  checkpoint.at(kRouter).dtype = "F16";
  EXPECT_THAT(weights_refusal(checkpoint),
              AllOf(HasSubstr(kRouter), HasSubstr("F16"), HasSubstr("BF16 or F32")));
  checkpoint = make_tiny_checkpoint({});
  checkpoint.at(part_name(1, 0, "w2.weight_scale")).dtype = "I8";
  EXPECT_THAT(weights_refusal(checkpoint),
              AllOf(HasSubstr("experts.0.w2.weight_scale"), HasSubstr("I8"), HasSubstr("U8")));
}

TEST(Checkpoint, RefusesATensorInTwoShards) {
  TinyCheckpoint checkpoint = make_tiny_checkpoint({});
  test::TinyTensor twin = checkpoint.at(kRouter);
  twin.shard = 2;
  checkpoint.tensors.push_back(twin);
  EXPECT_THAT(weights_refusal(checkpoint),
              AllOf(HasSubstr(kRouter), HasSubstr("model-00002-of-00006.safetensors"),
                    HasSubstr("model-00003-of-00006.safetensors")));
}

TEST(Checkpoint, RefusesANonZeroALogTail) {
  TinyCheckpoint checkpoint = make_tiny_checkpoint({});
  const float value = 0.25F;
  std::memcpy(checkpoint.at(kALog).data.data() + 5 * sizeof(float), &value, sizeof(value));
  EXPECT_THAT(weights_refusal(checkpoint), AllOf(HasSubstr("model-00001-of-00006.safetensors"),
                                                 HasSubstr(kALog), HasSubstr("value 5 is 0.25")));
}

TEST(Checkpoint, RefusesANonZeroBf16ALogTail) {
  TinyCheckpoint checkpoint = make_tiny_checkpoint({});
  test::TinyTensor& a_log = checkpoint.at(kALog);
  a_log.dtype = "BF16";
  a_log.data.assign(32, '\0');
  a_log.data[31] = '\x40';  // 2.0 in the last of 16 values
  EXPECT_THAT(weights_refusal(checkpoint), AllOf(HasSubstr(kALog), HasSubstr("value 15 is 2")));
}

TEST(Checkpoint, RefusesAnALogOfAnotherLength) {
  TinyCheckpoint checkpoint = make_tiny_checkpoint({});
  checkpoint.at(kALog).shape = {8};
  checkpoint.at(kALog).data.resize(32);
  EXPECT_THAT(weights_refusal(checkpoint),
              AllOf(HasSubstr(kALog), HasSubstr("[8]"), HasSubstr("[16] or [2]")));
}

TEST(Checkpoint, RefusesExpertWidthsThatMxfp4CannotHold) {
  const TempDir dir;
  TinyCheckpoint checkpoint = make_tiny_checkpoint({});
  json config = json::parse(checkpoint.config_json);
  config["text_config"]["moe_intermediate_size"] = 48;
  checkpoint.config_json = config.dump();
  write_tiny_checkpoint(checkpoint, dir.path());
  const Refusal refused = refusal(dir.path());
  EXPECT_EQ(refused.code, ErrorCode::kUsage);
  EXPECT_THAT(refused.message, AllOf(HasSubstr("config.json"), HasSubstr("moe_intermediate_size"),
                                     HasSubstr("48"), HasSubstr("32")));
}

TEST(Checkpoint, RefusesALayerCountOutOfRange) {
  const TempDir dir;
  write_tiny_checkpoint(TinyOptions{}, dir.path());
  for (const int layers : {-1, 0, 5}) {
    const Refusal refused = refusal(dir.path(), layers);
    EXPECT_EQ(refused.code, ErrorCode::kUsage);
    EXPECT_THAT(refused.message,
                AllOf(HasSubstr("layers " + std::to_string(layers)), HasSubstr("1..4")));
  }
  EXPECT_EQ(opened(dir.path(), 4).config().layers, 4);
}

}  // namespace
}  // namespace k3
