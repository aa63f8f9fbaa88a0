// Reading the reference goldens: JSON arrays, the tiny oracle, tolerances.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "common/checkpoint/model_config.h"
#include "tests/unit/services/compute/memory_weights.h"

namespace k3::compute::test {

inline nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return nlohmann::json::parse(file);
}

// The flat values of {"shape", "data"}.
inline std::vector<float> values(const nlohmann::json& golden, const std::string& name) {
  return golden.at(name).at("data").get<std::vector<float>>();
}

inline std::vector<float> read_floats(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::vector<float> floats(std::filesystem::file_size(path) / sizeof(float));
  file.read(reinterpret_cast<char*>(floats.data()), floats.size() * sizeof(float));
  return floats;
}

// |got - want| <= absolute + relative * |want|, element by element; the worst one is reported.
inline void expect_near(std::span<const float> got, std::span<const float> want, float absolute,
                        float relative) {
  ASSERT_EQ(got.size(), want.size());
  std::size_t worst = 0;
  float worst_excess = -1.0f;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i])) << "element " << i;
    const float excess = std::abs(got[i] - want[i]) - (absolute + relative * std::abs(want[i]));
    if (i == 0 || excess > worst_excess) {
      worst = i;
      worst_excess = excess;
    }
  }
  EXPECT_LE(worst_excess, 0.0f) << "element " << worst << ": got " << got[worst] << ", want "
                                << want[worst];
}

// Root of the mean squared difference.
inline double rms_difference(std::span<const float> got, std::span<const float> want) {
  EXPECT_EQ(got.size(), want.size());
  double sum = 0;
  for (std::size_t i = 0; i < got.size(); ++i) sum += std::pow(double{got[i]} - want[i], 2);
  return std::sqrt(sum / got.size());
}

// The tiny oracle: configuration, weights, and what it must say.
struct Oracle {
  ModelConfig config;
  TensorMap weights;
  std::vector<std::int32_t> prompt, full, predictions;
  std::vector<float> logits;  // [full][vocab]
};

// The oracle's configuration, with the epsilon its goldens were made with in the MLA norms.
inline ModelConfig oracle_config(const std::filesystem::path& reference) {
  const auto golden = read_json(reference / "ref_k3.json");
  Result<ModelConfig> config = parse_model_config(golden.at("config").dump(), "ref_k3.json");
  EXPECT_TRUE(config) << config.error().message;
  config->mla_norm_eps = 1e-5f;
  return *config;
}

inline Oracle read_oracle(const std::filesystem::path& reference) {
  const auto golden = read_json(reference / "ref_k3.json");
  Oracle oracle{.config = oracle_config(reference),
                .weights = {},
                .prompt = golden.at("prompt_ids"),
                .full = golden.at("full_ids"),
                .predictions = golden.at("tf_pred"),
                .logits = read_floats(reference / "tiny_k3_logits.f32")};
  const auto floats = read_floats(reference / "tiny_k3.bin");
  const auto index = read_json(reference / "tiny_k3.json");
  for (const auto& [name, place] : index.at("tensors").items()) {
    const auto start = floats.begin() + place.at("offset").get<std::ptrdiff_t>();
    oracle.weights[name].assign(start, start + place.at("numel").get<std::ptrdiff_t>());
  }
  return oracle;
}

}  // namespace k3::compute::test
