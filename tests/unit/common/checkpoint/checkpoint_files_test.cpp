// Files of a checkpoint that are missing, no files, cut short, or at odds with the index.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "common/checkpoint/checkpoint.h"
#include "tests/unit/common/checkpoint/checkpoint_support.h"

namespace k3 {
namespace {

using nlohmann::json;
using test::kRouter;
using test::make_tiny_checkpoint;
using test::part_name;
using test::refusal;
using test::TempDir;
using test::text_of_file;
using test::TinyCheckpoint;
using test::TinyOptions;
using test::write_text;
using test::write_tiny_checkpoint;
using ::testing::AllOf;
using ::testing::HasSubstr;

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

TEST(Checkpoint, WhatIsNoFileInPlaceOfAShardIsRefusedAtOnce) {
  const TempDir dir;
  write_tiny_checkpoint(TinyOptions{}, dir.path());
  const std::filesystem::path shard = dir.path() / "model-00003-of-00006.safetensors";
  std::filesystem::remove(shard);
  ASSERT_EQ(::mkfifo(shard.c_str(), 0600), 0);
  EXPECT_EQ(refusal(dir.path()).code, ErrorCode::kWeights);
  EXPECT_THAT(refusal(dir.path()).message, AllOf(HasSubstr(shard.string()), HasSubstr("a pipe")));
  std::filesystem::remove(shard);
  std::filesystem::create_directory(shard);
  EXPECT_EQ(refusal(dir.path()).code, ErrorCode::kWeights);
  EXPECT_THAT(refusal(dir.path()).message, AllOf(HasSubstr(shard.string()), HasSubstr("a folder")));
}

TEST(Checkpoint, WhatIsNoFileInPlaceOfTheConfigurationIsRefusedAtOnce) {
  const TempDir dir;
  write_tiny_checkpoint(TinyOptions{}, dir.path());
  std::filesystem::remove(dir.path() / "config.json");
  ASSERT_EQ(::mkfifo((dir.path() / "config.json").c_str(), 0600), 0);
  EXPECT_EQ(refusal(dir.path()).code, ErrorCode::kUsage);
  EXPECT_THAT(refusal(dir.path()).message, AllOf(HasSubstr("config.json"), HasSubstr("a pipe")));
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

// The index lists the same thing twice: which of the two is meant nobody can know.
TEST(Checkpoint, RefusesAnIndexThatNamesATensorOrItsMapTwice) {
  const TempDir dir;
  write_tiny_checkpoint(TinyOptions{}, dir.path());
  const std::filesystem::path index = dir.path() / "model.safetensors.index.json";
  const std::string text = text_of_file(index);
  const std::string listing = std::string("\"") + kRouter + "\": ";
  std::string doubled = text;
  doubled.insert(doubled.find(listing), listing + "\"model-00002-of-00006.safetensors\", ");
  write_text(index, doubled);
  EXPECT_EQ(refusal(dir.path()).code, ErrorCode::kWeights);
  EXPECT_THAT(refusal(dir.path()).message, AllOf(HasSubstr(kRouter), HasSubstr("twice")));

  doubled = text;
  doubled.insert(doubled.rfind('}'), ", \"weight_map\": {}");
  write_text(index, doubled);
  EXPECT_EQ(refusal(dir.path()).code, ErrorCode::kWeights);
  EXPECT_THAT(refusal(dir.path()).message, AllOf(HasSubstr("index.json"), HasSubstr("twice")));
}

}  // namespace
}  // namespace k3
