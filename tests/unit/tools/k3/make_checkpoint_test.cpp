// Made-up checkpoints: legal, in the released layout, the same from the same seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "common/base/file.h"
#include "common/checkpoint/checkpoint.h"
#include "tests/unit/support/temp_dir.h"
#include "tests/unit/tools/k3/command.h"
#include "tools/k3/checkpoint_config.h"
#include "tools/k3/checkpoint_plan.h"
#include "tools/k3/random_weights.h"

namespace k3 {
namespace {

using testing::HasSubstr;

class MakeCheckpointTest : public testing::Test {
 protected:
  Status make(const std::string& name, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"make-checkpoint", "--out", path(name).string()});
    return test::run_command(cli::add_make_checkpoint, std::move(arguments));
  }

  Checkpoint made(const std::string& name, std::vector<std::string> arguments) {
    const Status status = make(name, std::move(arguments));
    EXPECT_TRUE(status) << status.error().message;
    Result<Checkpoint> checkpoint = Checkpoint::open(path(name), {});
    if (!checkpoint) throw std::runtime_error(checkpoint.error().message);
    return std::move(*checkpoint);
  }

  std::filesystem::path path(const std::string& name) const { return folder_.path() / name; }

  static std::vector<std::byte> data_of(const Checkpoint& checkpoint, const std::string& name) {
    const TensorPlace& place = *checkpoint.find(name);
    const auto& shard = checkpoint.shards()[place.shard].path;
    std::vector<std::byte> bytes(place.bytes);
    EXPECT_TRUE(read_exactly(open_for_reading(shard).value().get(), place.offset, bytes, shard));
    return bytes;
  }

  static std::map<std::string, std::vector<std::byte>> contents_of(const Checkpoint& checkpoint) {
    std::map<std::string, std::vector<std::byte>> contents;
    for (const Checkpoint::NamedTensor& tensor : checkpoint.tensors()) {
      contents[std::string(tensor.name)] = data_of(checkpoint, std::string(tensor.name));
    }
    return contents;
  }

  static std::vector<float> bf16_values(const std::vector<std::byte>& bytes) {
    std::vector<float> values(bytes.size() / 2);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::memcpy(reinterpret_cast<std::byte*>(&values[i]) + 2, &bytes[2 * i], 2);
    }
    return values;
  }

  static std::pair<double, double> mean_and_deviation(const std::vector<float>& values) {
    const double count = static_cast<double>(values.size());
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
    double squares = 0;
    for (const float value : values) squares += (value - mean) * (value - mean);
    return {mean, std::sqrt(squares / count)};
  }

  test::TempDir folder_;
};

constexpr const char* kQ = "language_model.model.layers.0.self_attn.q_proj.weight";

TEST_F(MakeCheckpointTest, NamedShapesAreLegal) {
  const Checkpoint tiny = made("tiny", {});
  EXPECT_EQ(tiny.config().layers, 9);
  EXPECT_EQ(tiny.config().hidden, 128);
  const Checkpoint demo = made("demo", {"--shape", "demo", "--sparse"});
  EXPECT_EQ(demo.config().layers, 7);
  EXPECT_EQ(demo.config().attention[3], Attention::kMla);
  EXPECT_EQ(demo.config().attention[6], Attention::kMla);
}

TEST_F(MakeCheckpointTest, ReleasedShapeHasTheReleasedNumbers) {
  const std::string json = cli::checkpoint_config("released", {}, {}).value();
  const ModelConfig config = parse_model_config(json, "config.json").value();
  const auto mla = std::count(config.attention.begin(), config.attention.end(), Attention::kMla);
  EXPECT_EQ(mla, 24);
  EXPECT_EQ(config.layers - mla, 69);
  EXPECT_EQ(config.attention[91], Attention::kMla);
  EXPECT_EQ(config.attention[92], Attention::kMla);
  const cli::CheckpointPlan plan = cli::plan_checkpoint(config, false);
  std::uint64_t layer_bytes = 0;
  std::uint64_t expert_bytes = 0;
  std::uint64_t top_bytes = 0;
  for (const cli::PlannedTensor& tensor : plan.tensors) {
    std::uint64_t& bytes = tensor.dtype == DType::kU8                       ? expert_bytes
                           : tensor.shard == static_cast<std::uint32_t>(93) ? top_bytes
                                                                            : layer_bytes;
    bytes += tensor.bytes;
  }
  // The released checkpoint's own numbers.
  EXPECT_EQ(layer_bytes, 108'811'877'376u);
  EXPECT_EQ(expert_bytes, 82'432ull * 17'547'264);
  EXPECT_EQ(top_bytes, 2ull * 163'840 * 7168 * 2 + 3 * 7168 * 2);
}

TEST_F(MakeCheckpointTest, ReleasedSizeIsTheReleasedCheckpoints) {
  const std::string json = cli::checkpoint_config("released", {}, {}).value();
  cli::CheckpointPlan plan =
      cli::plan_checkpoint(parse_model_config(json, "config.json").value(), false);
  cli::add_vision_stand_ins(plan);
  std::uint64_t bytes = 0;
  std::set<std::uint32_t> shards;
  std::set<std::string> names;
  for (const cli::PlannedTensor& tensor : plan.tensors) {
    bytes += tensor.bytes;
    shards.insert(tensor.shard);
    names.insert(tensor.name);
  }
  EXPECT_EQ(plan.shards, 96u);
  EXPECT_EQ(shards.size(), 96u);
  EXPECT_EQ(*shards.rbegin(), 95u);
  EXPECT_EQ(plan.tensors.size(), 497'220u);
  EXPECT_EQ(names.size(), 497'220u);
  EXPECT_EQ(bytes, 1'560'936'091'448u);
}

TEST_F(MakeCheckpointTest, LayoutIsTheReleasedOne) {
  const Checkpoint checkpoint = made("m", {});
  ASSERT_EQ(checkpoint.shards().size(), 10u);
  const ShardHeader header = read_shard_header(checkpoint.shards()[1].path).value();
  for (std::size_t i = 1; i < header.tensors.size(); ++i) {
    const TensorEntry& before = header.tensors[i - 1];
    const TensorEntry& here = header.tensors[i];
    EXPECT_LT(std::tie(before.dtype, before.name), std::tie(here.dtype, here.name));
  }
  EXPECT_EQ(header.tensors.front().dtype, DType::kF32);
  EXPECT_EQ(header.tensors.back().dtype, DType::kU8);
  EXPECT_EQ(checkpoint.find("language_model.model.layers.0.self_attn.A_log")->shape,
            (std::vector<std::uint64_t>{16}));  // 4 count
  const auto index =
      nlohmann::json::parse(std::ifstream(path("m") / "model.safetensors.index.json"));
  EXPECT_EQ(index["weight_map"].size(), checkpoint.tensors().size());
  EXPECT_EQ(index["weight_map"][kQ], checkpoint.shards()[0].path.filename().string());
}

TEST_F(MakeCheckpointTest, SeedDecidesTheWeightsAndLayoutDoesNot) {
  const auto first = contents_of(made("a", {"--seed", "7"}));
  EXPECT_EQ(contents_of(made("b", {"--seed", "7"})), first);
  EXPECT_NE(contents_of(made("c", {"--seed", "8"})), first);
  const Checkpoint scattered = made("d", {"--seed", "7", "--scatter"});
  EXPECT_EQ(contents_of(scattered), first);
  std::set<std::uint32_t> shards_of_a_layer;
  for (const auto& tensor : scattered.tensors()) {
    if (tensor.name.find("layers.2.self_attn") != std::string::npos) {
      shards_of_a_layer.insert(tensor.place->shard);
    }
  }
  EXPECT_GT(shards_of_a_layer.size(), 1u);
}

TEST_F(MakeCheckpointTest, MagnitudesAreSane) {
  const Checkpoint checkpoint = made("m", {"--shape", "demo", "--layers", "2"});
  const auto [q_mean, q_deviation] = mean_and_deviation(bf16_values(data_of(checkpoint, kQ)));
  EXPECT_NEAR(q_mean, 0, 0.002);
  EXPECT_NEAR(q_deviation, 1 / std::sqrt(192.0), 0.003);
  const auto [norm_mean, norm_deviation] = mean_and_deviation(
      bf16_values(data_of(checkpoint, "language_model.model.layers.0.input_layernorm.weight")));
  EXPECT_NEAR(norm_mean, 1, 0.05);
  EXPECT_NEAR(norm_deviation, 0.1, 0.03);

  // Expert weights decoded by the definition of MXFP4.
  constexpr std::array<float, 8> kE2m1 = {0, .5, 1, 1.5, 2, 3, 4, 6};
  const auto packed = data_of(checkpoint, expert_tensor_name(1, 0, ExpertPart::kW1Packed));
  const auto scales = data_of(checkpoint, expert_tensor_name(1, 0, ExpertPart::kW1Scale));
  std::vector<float> weights;
  for (std::size_t i = 0; i < 2 * packed.size(); ++i) {
    const int nibble = (std::to_integer<int>(packed[i / 2]) >> (i % 2 * 4)) & 15;
    const float sign = nibble & 8 ? -1.f : 1.f;
    weights.push_back(sign * std::ldexp(kE2m1[static_cast<std::size_t>(nibble & 7)],
                                        std::to_integer<int>(scales[i / 32]) - 127));
  }
  const auto [w_mean, w_deviation] = mean_and_deviation(weights);
  EXPECT_NEAR(w_mean, 0, 0.01);
  EXPECT_GT(w_deviation, 0.4 / std::sqrt(96.0));
  EXPECT_LT(w_deviation, 2.5 / std::sqrt(96.0));
}

TEST_F(MakeCheckpointTest, PiecesOfATensorJoinUp) {
  const cli::PlannedTensor tensor{.name = "t",
                                  .dtype = DType::kF32,
                                  .shape = {37},
                                  .filling = {0, 1, 30, 0},
                                  .bytes = 148,
                                  .shard = 0};
  const cli::RandomTensor values(tensor, 3);
  std::vector<std::byte> whole(148);
  values.fill(0, whole);
  std::vector<std::byte> pieces(148);
  for (std::size_t at = 0; at < 148; at += 16) {
    values.fill(at, std::span(pieces).subspan(at, std::min<std::size_t>(16, 148 - at)));
  }
  EXPECT_EQ(pieces, whole);
  EXPECT_EQ(std::count(whole.begin() + 120, whole.end(), std::byte{0}), 28);  // beyond 30 values
  EXPECT_NE(std::count(whole.begin(), whole.begin() + 120, std::byte{0}), 120);
}

TEST_F(MakeCheckpointTest, SparseIsHoles) {
  const Checkpoint checkpoint = made("m", {"--shape", "demo", "--sparse"});
  for (const Shard& shard : checkpoint.shards()) {
    struct stat info {};
    ASSERT_EQ(::stat(shard.path.c_str(), &info), 0);
    EXPECT_LT(static_cast<std::uint64_t>(info.st_blocks) * 512, shard.file_bytes / 2) << shard.path;
  }
}

TEST_F(MakeCheckpointTest, FirstLayersOfASparseOneCanHaveValues) {
  const Checkpoint full = made("full", {});
  const Checkpoint some = made("some", {"--sparse", "--fill-layers", "2"});
  const auto is_zero = [](const std::vector<std::byte>& bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
  };
  for (const Checkpoint::NamedTensor& tensor : full.tensors()) {
    const std::string name(tensor.name);
    const std::size_t at = name.find("layers.");
    const bool filled = at == std::string::npos || std::stoi(name.substr(at + 7)) < 2;
    if (filled) {
      EXPECT_EQ(data_of(some, name), data_of(full, name)) << name;
    } else {
      EXPECT_TRUE(is_zero(data_of(some, name))) << name;
    }
  }
}

TEST_F(MakeCheckpointTest, FieldsCanBeChanged) {
  const Checkpoint checkpoint =
      made("m", {"--layers", "5", "--experts", "3", "--top-k", "2", "--vocab", "33", "--set",
                 "linear_attn_config.num_heads=2", "--set", "hidden_size=64"});
  const ModelConfig& config = checkpoint.config();
  EXPECT_EQ(config.layers, 5);
  EXPECT_EQ(config.experts, 3);
  EXPECT_EQ(config.top_k, 2);
  EXPECT_EQ(config.vocab, 33);
  EXPECT_EQ(config.kda_heads, 2);
  EXPECT_EQ(config.hidden, 64);
  EXPECT_EQ(config.attention[3], Attention::kMla);
}

TEST_F(MakeCheckpointTest, ShapeMayBeAFile) {
  ASSERT_TRUE(make("a", {"--layers", "3", "--sparse"}));
  const Checkpoint copy =
      made("b", {"--shape", (path("a") / "config.json").string(), "--sparse", "--layers", "4"});
  EXPECT_EQ(copy.config().layers, 4);
}

TEST_F(MakeCheckpointTest, BadRequestsNameTheValue) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--shape", "huge"}, "huge"},
      {{"--layers", "0"}, "--layers 0"},
      {{"--layers", "2000000000"}, "--layers 2000000000"},
      {{"--set", "no_such_field=1"}, "no_such_field=1"},
      {{"--set", "linear_attn_config.nothing=1"}, "linear_attn_config.nothing=1"},
      {{"--set", "hidden_size"}, "hidden_size"},
      {{"--experts", "2", "--top-k", "3"}, "num_experts_per_token"},
      {{"--set", "hidden_size=wide"}, "hidden_size"},
  };
  for (const auto& [arguments, named] : cases) {
    const Status status = make("m", arguments);
    ASSERT_FALSE(status) << named;
    EXPECT_EQ(status.error().code, ErrorCode::kUsage);
    EXPECT_THAT(status.error().message, HasSubstr(named));
    EXPECT_FALSE(std::filesystem::exists(path("m")));
  }
}

TEST_F(MakeCheckpointTest, NonEmptyDirectoryIsRefused) {
  std::filesystem::create_directory(path("m"));
  ASSERT_TRUE(make("m", {"--sparse"}));
  const Status again = make("m", {"--sparse"});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kUsage);
  EXPECT_THAT(again.error().message, HasSubstr("not empty"));
}

TEST_F(MakeCheckpointTest, MoreThanTheDiskHoldsIsRefused) {
  if (std::filesystem::space(folder_.path()).available > 1'500'000'000'000u) {
    GTEST_SKIP() << "the disk could hold it";
  }
  const Status status = make("m", {"--shape", "released"});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kOutput);
  EXPECT_THAT(status.error().message, HasSubstr("free"));
}

}  // namespace
}  // namespace k3
