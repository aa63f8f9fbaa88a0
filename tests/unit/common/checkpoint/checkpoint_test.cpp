#include "common/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/unit/support/reference_data.h"
#include "tests/unit/support/temp_dir.h"
#include "tests/unit/support/tiny_checkpoint.h"

namespace k3 {
namespace {

using nlohmann::json;
using test::make_tiny_checkpoint;
using test::TempDir;
using test::TinyCheckpoint;
using test::TinyOptions;
using test::write_tiny_checkpoint;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kRouter = "language_model.model.layers.1.block_sparse_moe.gate.weight";
constexpr const char* kALog = "language_model.model.layers.0.self_attn.A_log";

std::string part_name(int layer, int expert, const std::string& part) {
  return "language_model.model.layers." + std::to_string(layer) + ".block_sparse_moe.experts." +
         std::to_string(expert) + "." + part;
}

std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return (std::stringstream() << file.rdbuf()).str();
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

Checkpoint opened(const std::filesystem::path& dir, std::optional<int> layers = std::nullopt) {
  Result<Checkpoint> checkpoint = Checkpoint::open(dir, {.layers = layers});
  if (!checkpoint) throw std::runtime_error(checkpoint.error().message);
  return *checkpoint;
}

struct Refusal {
  ErrorCode code{};
  std::string message;
};

Refusal refusal(const std::filesystem::path& dir, std::optional<int> layers = std::nullopt) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(dir, {.layers = layers});
  if (checkpoint) return {ErrorCode{}, "accepted"};
  return {checkpoint.error().code, checkpoint.error().message};
}

// The refusal of a checkpoint written from memory, which is about its weights.
std::string weights_refusal(const TinyCheckpoint& checkpoint,
                            std::optional<int> layers = std::nullopt) {
  const TempDir dir;
  write_tiny_checkpoint(checkpoint, dir.path());
  const Refusal refused = refusal(dir.path(), layers);
  EXPECT_EQ(refused.code, ErrorCode::kWeights) << refused.message;
  return refused.message;
}

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

TEST(Checkpoint, NamesMissingFiles) {
  const TempDir dir;
  EXPECT_EQ(refusal(dir.path()).code, ErrorCode::kUsage);
  EXPECT_THAT(refusal(dir.path()).message, HasSubstr("config.json"));

  write_tiny_checkpoint(TinyOptions{}, dir.path());
  std::filesystem::remove(dir.path() / "model-00006-of-00006.safetensors");
  EXPECT_EQ(refusal(dir.path()).code, ErrorCode::kWeights);
  EXPECT_THAT(refusal(dir.path()).message, HasSubstr("model-00006-of-00006.safetensors"));

  std::filesystem::remove(dir.path() / "model.safetensors.index.json");
  EXPECT_EQ(refusal(dir.path()).code, ErrorCode::kWeights);
  EXPECT_THAT(refusal(dir.path()).message, HasSubstr("model.safetensors.index.json"));
}

TEST(Checkpoint, RefusesATruncatedShardBeforeReadingIt) {
  const TempDir dir;
  write_tiny_checkpoint(TinyOptions{}, dir.path());
  const std::filesystem::path shard = dir.path() / "model-00003-of-00006.safetensors";
  const std::uint64_t size = std::filesystem::file_size(shard);
  for (const std::uint64_t cut : {size - 1, size / 2, std::uint64_t{100}, std::uint64_t{3}}) {
    std::filesystem::resize_file(shard, cut);
    EXPECT_EQ(refusal(dir.path()).code, ErrorCode::kWeights);
    EXPECT_THAT(refusal(dir.path()).message, HasSubstr("model-00003-of-00006.safetensors")) << cut;
  }
}

// Changes the index of a written checkpoint.
template <class Change>
void change_index(const std::filesystem::path& dir, const Change& change) {
  const std::filesystem::path path = dir / "model.safetensors.index.json";
  json index = json::parse(text_of_file(path));
  change(index["weight_map"]);
  write_text(path, index.dump());
}

TEST(Checkpoint, IndexMustAgreeWithTheShards) {
  const TempDir dir;
  write_tiny_checkpoint(TinyOptions{}, dir.path());
  change_index(dir.path(), [](json& map) { map[kRouter] = "model-00003-of-00006.safetensors"; });
  EXPECT_EQ(refusal(dir.path()).code, ErrorCode::kWeights);
  EXPECT_THAT(refusal(dir.path()).message,
              AllOf(HasSubstr(kRouter), HasSubstr("model-00002-of-00006.safetensors"),
                    HasSubstr("model-00003-of-00006.safetensors")));

  write_tiny_checkpoint(TinyOptions{}, dir.path());
  change_index(dir.path(), [](json& map) { map.erase(kRouter); });
  EXPECT_THAT(refusal(dir.path()).message, AllOf(HasSubstr(kRouter), HasSubstr("not listed")));

  write_tiny_checkpoint(TinyOptions{}, dir.path());
  change_index(dir.path(),
               [](json& map) { map["vision_tower.x"] = "model-00006-of-00006.safetensors"; });
  EXPECT_THAT(refusal(dir.path()).message, AllOf(HasSubstr("vision_tower.x"), HasSubstr("absent"),
                                                 HasSubstr("model-00006-of-00006.safetensors")));

  write_tiny_checkpoint(TinyOptions{}, dir.path());
  change_index(dir.path(), [](json& map) {
    map["language_model.model.extra"] = "model-00006-of-00006.safetensors";
  });
  EXPECT_THAT(refusal(dir.path()).message, HasSubstr("language_model.model.extra"));
}

TEST(Checkpoint, AListedExpertThatIsAbsentIsNamed) {
  TinyCheckpoint checkpoint = make_tiny_checkpoint({});
  const TempDir dir;
  write_tiny_checkpoint(checkpoint, dir.path());
  const std::string index = text_of_file(dir.path() / "model.safetensors.index.json");
  const std::string name = part_name(2, 10, "w2.weight_packed");
  checkpoint.erase(name);
  write_tiny_checkpoint(checkpoint, dir.path());
  write_text(dir.path() / "model.safetensors.index.json", index);
  EXPECT_THAT(refusal(dir.path()).message,
              AllOf(HasSubstr(name), HasSubstr("model-00003-of-00006.safetensors")));
}

TEST(Checkpoint, RefusesAnIndexThatIsNone) {
  const TempDir dir;
  write_tiny_checkpoint(TinyOptions{}, dir.path());
  const std::filesystem::path index = dir.path() / "model.safetensors.index.json";
  for (const std::string text :
       {"", "{", "[]", "{}", R"({"weight_map": []})", R"({"weight_map": {"a": 1}})"}) {
    write_text(index, text);
    EXPECT_EQ(refusal(dir.path()).code, ErrorCode::kWeights) << text;
    EXPECT_THAT(refusal(dir.path()).message, HasSubstr("model.safetensors.index.json")) << text;
  }
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

TEST(Fingerprint, IsTheSameForTheSameCheckpoint) {
  const TempDir first;
  const TempDir second;
  write_tiny_checkpoint(TinyOptions{}, first.path());
  write_tiny_checkpoint(TinyOptions{}, second.path());
  const std::string fingerprint = opened(first.path()).fingerprint();
  EXPECT_THAT(fingerprint, ::testing::MatchesRegex("[0-9a-f]{32}"));
  EXPECT_EQ(fingerprint, opened(second.path()).fingerprint());
}

TEST(Fingerprint, DiffersBetweenRevisionsOfTheSameLayout) {
  const TempDir dir;
  write_tiny_checkpoint(TinyOptions{.seed = 1}, dir.path());
  const std::string before = opened(dir.path()).fingerprint();
  write_tiny_checkpoint(TinyOptions{.seed = 2}, dir.path());
  EXPECT_NE(opened(dir.path()).fingerprint(), before);
}

TEST(Fingerprint, DiffersWithTheConfiguration) {
  const TempDir dir;
  TinyCheckpoint checkpoint = make_tiny_checkpoint({});
  write_tiny_checkpoint(checkpoint, dir.path());
  const std::string before = opened(dir.path()).fingerprint();
  json config = json::parse(checkpoint.config_json);
  config["text_config"]["num_experts_per_token"] = 4;
  write_text(dir.path() / "config.json", config.dump(1));
  EXPECT_NE(opened(dir.path()).fingerprint(), before);
}

TEST(Fingerprint, CoversOnlyTheShardsInUse) {
  const TempDir dir;
  TinyCheckpoint checkpoint = make_tiny_checkpoint({});
  write_tiny_checkpoint(checkpoint, dir.path());
  const std::string two = opened(dir.path(), 2).fingerprint();
  const std::string four = opened(dir.path()).fingerprint();
  EXPECT_NE(two, four);
  std::string& data = checkpoint.at("language_model.model.layers.3.input_layernorm.weight").data;
  data[0] = static_cast<char>(data[0] ^ 1);
  write_tiny_checkpoint(checkpoint, dir.path());
  EXPECT_EQ(opened(dir.path(), 2).fingerprint(), two);
  EXPECT_NE(opened(dir.path()).fingerprint(), four);
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
