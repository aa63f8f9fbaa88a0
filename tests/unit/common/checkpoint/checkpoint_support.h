// What the tests of a whole checkpoint directory share: opening it, its refusals, its files.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

#include "common/checkpoint/checkpoint.h"
#include "tests/unit/support/temp_dir.h"
#include "tests/unit/support/tiny_checkpoint.h"

namespace k3::test {

inline constexpr const char* kRouter = "language_model.model.layers.1.block_sparse_moe.gate.weight";
inline constexpr const char* kALog = "language_model.model.layers.0.self_attn.A_log";

inline std::string part_name(int layer, int expert, const std::string& part) {
  return "language_model.model.layers." + std::to_string(layer) + ".block_sparse_moe.experts." +
         std::to_string(expert) + "." + part;
}

inline std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return (std::stringstream() << file.rdbuf()).str();
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline Checkpoint opened(const std::filesystem::path& dir,
                         std::optional<int> layers = std::nullopt) {
  Result<Checkpoint> checkpoint = Checkpoint::open(dir, {.layers = layers});
  if (!checkpoint) throw std::runtime_error(checkpoint.error().message);
  return *checkpoint;
}

struct Refusal {
  ErrorCode code{};
  std::string message;
};

inline Refusal refusal(const std::filesystem::path& dir, std::optional<int> layers = std::nullopt) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(dir, {.layers = layers});
  if (checkpoint) return {ErrorCode{}, "accepted"};
  return {checkpoint.error().code, checkpoint.error().message};
}

// The refusal of a checkpoint written from memory, which is about its weights.
inline std::string weights_refusal(const TinyCheckpoint& checkpoint,
                                   std::optional<int> layers = std::nullopt) {
  const TempDir dir;
  write_tiny_checkpoint(checkpoint, dir.path());
  const Refusal refused = refusal(dir.path(), layers);
  EXPECT_EQ(refused.code, ErrorCode::kWeights) << refused.message;
  return refused.message;
}

}  // namespace k3::test
