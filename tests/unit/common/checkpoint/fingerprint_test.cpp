// What the fingerprint of a checkpoint covers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/checkpoint/checkpoint.h"
#include "tests/unit/common/checkpoint/checkpoint_support.h"

namespace k3 {
namespace {

using nlohmann::json;
using test::make_tiny_checkpoint;
using test::opened;
using test::TempDir;
using test::TinyCheckpoint;
using test::TinyOptions;
using test::write_text;
using test::write_tiny_checkpoint;

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

TEST(Fingerprint, DiffersWithTheVocabulary) {
  const TempDir dir;
  write_tiny_checkpoint(TinyOptions{}, dir.path());
  const std::string without = opened(dir.path()).fingerprint();
  write_text(dir.path() / "tiktoken.model", "YQ== 0\nYg== 1\n");
  const std::string with_one = opened(dir.path()).fingerprint();
  write_text(dir.path() / "tiktoken.model", "Yg== 0\nYQ== 1\n");
  EXPECT_NE(with_one, without);
  EXPECT_NE(opened(dir.path()).fingerprint(), with_one);
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

}  // namespace
}  // namespace k3
