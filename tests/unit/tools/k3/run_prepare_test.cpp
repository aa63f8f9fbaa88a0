#include "tools/k3/run_prepare.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "common/checkpoint/expert_index.h"
#include "common/checkpoint/packed_trunk.h"
#include "tests/unit/support/temp_dir.h"
#include "tests/unit/support/tiny_checkpoint.h"

namespace k3::cli {
namespace {

using ::testing::HasSubstr;

const MemoryLimits kPlenty{64'000'000'000, std::nullopt};

class PrepareModel : public ::testing::Test {
 protected:
  PrepareModel() : model_(dir_.path() / "mod\xC3\xA9l 1") {  // C17
    test::write_tiny_checkpoint(test::TinyOptions{}, model_);
    options_.model = model_;
    options_.ids = "1";
    options_.max_tokens = 10;
    prompt_.ids = {1};
  }

  std::filesystem::path index_in(const std::filesystem::path& work) const {
    return work / kExpertIndexFile;
  }

  test::TempDir dir_;
  std::filesystem::path model_;
  RunOptions options_;
  Prompt prompt_;
};

TEST_F(PrepareModel, BuildsTheIndexOnFirstUseOnly) {
  const auto first = prepare_model(options_, prompt_, kPlenty);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_FALSE(first->trunk);
  const auto written = std::filesystem::last_write_time(index_in(model_ / ".k3"));
  ASSERT_TRUE(prepare_model(options_, prompt_, kPlenty));
  EXPECT_EQ(std::filesystem::last_write_time(index_in(model_ / ".k3")), written);
}

TEST_F(PrepareModel, TheModelFolderIsNotTouchedWithWork) {
  options_.work = dir_.path() / "work";
  ASSERT_TRUE(prepare_model(options_, prompt_, kPlenty));
  EXPECT_TRUE(std::filesystem::exists(index_in(dir_.path() / "work")));
  EXPECT_FALSE(std::filesystem::exists(model_ / ".k3"));
}

TEST_F(PrepareModel, AFolderThatCannotBeWrittenAsksForWork) {
  std::ofstream(model_ / ".k3") << "a file where the folder would go";
  const auto prepared = prepare_model(options_, prompt_, kPlenty);
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().code, ErrorCode::kOutput);
  EXPECT_THAT(prepared.error().message, HasSubstr("--work"));
}

TEST_F(PrepareModel, AnIndexOfAnotherCheckpointIsRefused) {  // C13
  options_.work = dir_.path() / "work";
  ASSERT_TRUE(prepare_model(options_, prompt_, kPlenty));
  test::TinyOptions other;
  other.seed = 2;
  test::write_tiny_checkpoint(other, dir_.path() / "other");
  options_.model = dir_.path() / "other";
  const auto prepared = prepare_model(options_, prompt_, kPlenty);
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().code, ErrorCode::kWeights);
}

TEST_F(PrepareModel, ThePackedTrunkInTheWorkFolderIsUsed) {
  const auto checkpoint = Checkpoint::open(model_, {});
  ASSERT_TRUE(checkpoint);
  std::filesystem::create_directories(model_ / ".k3");
  ASSERT_TRUE(
      write_packed_trunk(*checkpoint, model_ / ".k3", 100'000, PackAs::kCoded, [](auto, auto) {}));
  const auto prepared = prepare_model(options_, prompt_, kPlenty);
  ASSERT_TRUE(prepared) << prepared.error().message;
  EXPECT_EQ(prepared->trunk, model_ / ".k3");
}

TEST_F(PrepareModel, APartOfTheModelHasItsOwnFolder) {
  ASSERT_TRUE(prepare_model(options_, prompt_, kPlenty));
  options_.layers = 2;
  const auto part = prepare_model(options_, prompt_, kPlenty);
  ASSERT_TRUE(part) << part.error().message;
  EXPECT_TRUE(std::filesystem::exists(index_in(model_ / ".k3" / "layers-2")));
  EXPECT_EQ(part->checkpoint.config().layers, 2);
}

TEST_F(PrepareModel, MoreLayersThanTheModelHasIsAUsageError) {  // C52
  options_.layers = 5;
  const auto prepared = prepare_model(options_, prompt_, kPlenty);
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().code, ErrorCode::kUsage);
  EXPECT_THAT(prepared.error().message, HasSubstr("5"));
}

TEST_F(PrepareModel, AnIdOutsideOfTheVocabularyIsAUsageError) {  // C52
  prompt_.ids = {1, 96};
  EXPECT_THAT(prepare_model(options_, prompt_, kPlenty).error().message, HasSubstr("--ids 96"));
  prompt_.ids = {1};
  options_.stop_ids = {97};
  EXPECT_THAT(prepare_model(options_, prompt_, kPlenty).error().message, HasSubstr("--stop-id 97"));
  EXPECT_FALSE(std::filesystem::exists(model_ / ".k3"));
}

TEST_F(PrepareModel, TooLittleMemoryIsRefusedBeforeAnythingIsWritten) {
  const auto prepared = prepare_model(options_, prompt_, {1'000'000, std::nullopt});
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().code, ErrorCode::kFailed);
  EXPECT_THAT(prepared.error().message, HasSubstr("vocabulary"));
  EXPECT_FALSE(std::filesystem::exists(model_ / ".k3"));
}

TEST_F(PrepareModel, ThePageCacheNeedsNoIndexAndNoArena) {
  options_.experts = kPageCacheBinary;
  const auto prepared = prepare_model(options_, prompt_, kPlenty);
  ASSERT_TRUE(prepared) << prepared.error().message;
  EXPECT_EQ(prepared->plan.lines.back().what, "experts");
  EXPECT_EQ(prepared->plan.lines.back().bytes, 0u);
  EXPECT_FALSE(std::filesystem::exists(model_ / ".k3"));
  EXPECT_THAT(pipeline_settings(options_, *prepared),
              testing::Contains(std::pair<std::string, std::string>("experts", kPageCacheBinary)));
}

TEST_F(PrepareModel, BudgetsReachThePlanInBytes) {
  options_.trunk_gb = 0.005;
  options_.cache_gb = 0.0001;
  const auto prepared = prepare_model(options_, prompt_, kPlenty);
  ASSERT_TRUE(prepared) << prepared.error().message;
  EXPECT_EQ(prepared->plan.trunk_budget, 5'000'000u);
  EXPECT_EQ(prepared->plan.expert_budget, 100'000u);
  EXPECT_EQ(prepared->plan.positions, 11u);
}

}  // namespace
}  // namespace k3::cli
