#include "tools/k3/run_session.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/unique_fd.h"
#include "tests/unit/tools/k3/fake_pipeline.h"

namespace k3::cli {
namespace {

using test::fake_ids;
using test::FakePipeline;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class RunSession : public ::testing::Test {
 protected:
  RunSession() {
    options_.ids = "5,6,7";
    options_.max_tokens = 4;
    options_.json = dir_.path() / "report.json";
  }

  Status run(const FakePipeline& pipeline, bool own = false) {
    const Prompt prompt = read_prompt(options_).value();
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const Status status =
        run_session(options_, prompt, {.run_dir = pipeline.run_dir(), .own_pipeline = own});
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return status;
  }

  Json report() const { return Json::parse(std::ifstream(*options_.json)); }

  test::TempDir dir_;
  RunOptions options_;
  std::string out_;
  std::string err_;
};

std::string as_text(const std::vector<std::int32_t>& ids) {
  return std::string(ids.begin(), ids.end());
}

TEST_F(RunSession, PrintsTextAndReports) {
  FakePipeline pipeline;
  options_.verbose = true;
  const Status status = run(pipeline);
  ASSERT_TRUE(status) << status.error().message;
  const auto ids = fake_ids({5, 6, 7}, 4);
  EXPECT_EQ(out_, as_text(ids) + "\n");
  const Json json = report();
  EXPECT_EQ(json["prompt_ids"], Json({5, 6, 7}));
  EXPECT_EQ(json["generated_ids"], Json(ids));
  EXPECT_EQ(json["text"], as_text(ids));
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_GT(json["prefill_seconds"].get<double>(), 0);
  EXPECT_EQ(json["bytes_read"], Json({{"trunk", 400}, {"experts", 400}}));
  EXPECT_EQ(json["expert_requests"], Json({{"hits", 4}, {"prefetched", 8}, {"misses", 12}}));
  EXPECT_EQ(json["restarts"], 0);
  EXPECT_GT(json["peak_memory_bytes"].get<std::uint64_t>(), 1'000'000u);
  EXPECT_EQ(json["budgets"], Json({{"trunk", 4000}, {"experts", 3000}}));
  EXPECT_EQ(json["isa"], "avx2");
  EXPECT_EQ(json["fingerprint"], test::kFakeFingerprint);
  EXPECT_THAT(err_, HasSubstr("token 3 id=" + std::to_string(ids[3]) + " position=6"));
  EXPECT_THAT(err_, HasSubstr("2 of 7 layers"));
}

TEST_F(RunSession, APrivatePipelineCountsFromItsStart) {
  FakePipeline pipeline;
  ASSERT_TRUE(run(pipeline, true));
  EXPECT_EQ(report()["bytes_read"]["trunk"], 1400);
}

TEST_F(RunSession, OneTokenHasNoDecodeStep) {
  FakePipeline pipeline;
  options_.max_tokens = 1;
  ASSERT_TRUE(run(pipeline));
  EXPECT_TRUE(report()["seconds_per_token"].is_null());
}

TEST_F(RunSession, RestartsOfAnyStageAreCountedAndChangeNothing) {
  FakePipeline pipeline({.compute_dies_after = {2}, .tokenizer_dies_at = {3}});
  const Status status = run(pipeline);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(out_, as_text(fake_ids({5, 6, 7}, 4)) + "\n");
  EXPECT_EQ(report()["restarts"], 2);
}

TEST_F(RunSession, ACharacterOverSeveralTokensStaysWhole) {  // C45
  FakePipeline pipeline({.script = {0xE2, 0x82, 0xAC, 'x'}});
  ASSERT_TRUE(run(pipeline));
  EXPECT_EQ(out_, "\u20ACx\n");
  EXPECT_EQ(report()["text"], "\u20ACx");
}

TEST_F(RunSession, ChatEndsAtTheTokenizersStopIds) {
  FakePipeline pipeline({.stop_ids = {'z'}, .script = {'a', 'z', 'b', 'c'}});
  options_.ids.reset();
  options_.chat = "hi";
  options_.no_think = true;
  ASSERT_TRUE(run(pipeline));
  EXPECT_EQ(report()["prompt_ids"], Json({1, 'h', 'i', 3}));
  EXPECT_EQ(report()["generated_ids"], Json({'a', 'z'}));
  EXPECT_EQ(report()["finish_reason"], "stop");
}

TEST_F(RunSession, DumpsARowForEveryPosition) {
  FakePipeline pipeline({.compute_dies_after = {2}});
  options_.logits = dir_.path() / "logits.f32";
  options_.logits_positions = ipc::LogitsWanted::kAll;
  ASSERT_TRUE(run(pipeline));
  std::vector<float> expected;
  for (std::uint32_t position = 0; position < 6; ++position) {
    const auto row = test::fake_logits(position);
    expected.insert(expected.end(), row.begin(), row.end());
  }
  std::vector<float> found(std::filesystem::file_size(*options_.logits) / sizeof(float));
  std::ifstream(*options_.logits, std::ios::binary)
      .read(reinterpret_cast<char*>(found.data()),
            static_cast<std::streamsize>(found.size() * sizeof(float)));
  EXPECT_EQ(found, expected);
}

TEST_F(RunSession, DumpsARowForEveryGeneratedToken) {
  FakePipeline pipeline;
  options_.logits = dir_.path() / "logits.f32";
  ASSERT_TRUE(run(pipeline));
  EXPECT_EQ(std::filesystem::file_size(*options_.logits), 4u * test::kFakeVocab * sizeof(float));
}

TEST_F(RunSession, WithoutAVocabularyItPrintsIds) {
  FakePipeline pipeline({.has_vocabulary = false, .script = {9, 10, 11, 12}});
  ASSERT_TRUE(run(pipeline));
  EXPECT_EQ(out_, "9 10 11 12\n");
  EXPECT_TRUE(report()["text"].is_null());
}

TEST_F(RunSession, TextNeedsAVocabulary) {
  FakePipeline pipeline({.has_vocabulary = false});
  options_.ids.reset();
  options_.text = "hello";
  const Status status = run(pipeline);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUsage);
  EXPECT_THAT(status.error().message, HasSubstr("vocabulary"));
}

TEST_F(RunSession, AnIdOutsideOfTheVocabularyIsAUsageError) {  // C52
  FakePipeline pipeline;
  options_.ids = "5,256";
  const Status status = run(pipeline);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUsage);
  EXPECT_THAT(status.error().message, HasSubstr("256"));
  EXPECT_TRUE(pipeline.requests().empty());
}

TEST_F(RunSession, AnUnwritableReportLeavesTheResultsOnTheTerminal) {  // C18
  FakePipeline pipeline;
  options_.json = dir_.path() / "absent" / "report.json";
  const Status status = run(pipeline);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kOutput);
  EXPECT_EQ(out_, as_text(fake_ids({5, 6, 7}, 4)) + "\n");
  EXPECT_THAT(err_, HasSubstr("4 tokens"));
}

TEST_F(RunSession, UnwritableLogitsDoNotCostTheReport) {  // C18
  FakePipeline pipeline;
  options_.logits = dir_.path() / "absent" / "logits.f32";
  const Status status = run(pipeline);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kOutput);
  EXPECT_EQ(report()["generated_ids"].size(), 4u);
}

TEST_F(RunSession, AFailureAfterTokensKeepsThemInTheReport) {
  FakePipeline pipeline({.fails_after = 2});
  options_.logits = dir_.path() / "logits.f32";
  const Status status = run(pipeline);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kWeights);
  EXPECT_THAT(status.error().message, HasSubstr("layer 3 expert 17"));
  EXPECT_EQ(report()["generated_ids"], Json(fake_ids({5, 6, 7}, 2)));
  EXPECT_EQ(report()["finish_reason"], "error");
  EXPECT_EQ(std::filesystem::file_size(*options_.logits), 2u * test::kFakeVocab * sizeof(float));
}

TEST_F(RunSession, AFailureStaysTheErrorWhenTheReportCannotBeWrittenEither) {
  FakePipeline pipeline({.fails_after = 2});
  options_.json = dir_.path() / "absent" / "report.json";
  const Status status = run(pipeline);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kWeights);
  EXPECT_THAT(err_, HasSubstr("absent"));
}

TEST_F(RunSession, StdoutThatTakesNoMoreEndsTheGenerationWithItsReport) {
  FakePipeline pipeline({.never_ends = true});
  const Prompt prompt = read_prompt(options_).value();
  const UniqueFd before(dup(STDOUT_FILENO));
  const UniqueFd full(open("/dev/full", O_WRONLY));
  dup2(full.get(), STDOUT_FILENO);
  const Status status = run_session(options_, prompt, {.run_dir = pipeline.run_dir()});
  dup2(before.get(), STDOUT_FILENO);
  __fpurge(stdout);
  clearerr(stdout);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kOutput);
  EXPECT_THAT(status.error().message, HasSubstr("stdout: No space left"));
  EXPECT_TRUE(pipeline.cancelled());
  EXPECT_EQ(report()["generated_ids"], Json(fake_ids({5, 6, 7}, 1)));
  EXPECT_EQ(report()["text"], as_text(fake_ids({5, 6, 7}, 1)));
}

TEST_F(RunSession, StderrThatTakesNothingChangesNothing) {
  FakePipeline pipeline;
  options_.verbose = true;
  const Prompt prompt = read_prompt(options_).value();
  const UniqueFd before(dup(STDERR_FILENO));
  const UniqueFd full(open("/dev/full", O_WRONLY));
  dup2(full.get(), STDERR_FILENO);
  ::testing::internal::CaptureStdout();
  const Status status = run_session(options_, prompt, {.run_dir = pipeline.run_dir()});
  out_ = ::testing::internal::GetCapturedStdout();
  dup2(before.get(), STDERR_FILENO);
  EXPECT_TRUE(status);
  EXPECT_EQ(out_, as_text(fake_ids({5, 6, 7}, 4)) + "\n");
}

TEST_F(RunSession, AFailedRequestWritesNoReport) {
  FakePipeline pipeline({.refusal = {ErrorCode::kWeights, "unit 3: read failed"}});
  const Status status = run(pipeline);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kWeights);
  EXPECT_FALSE(std::filesystem::exists(*options_.json));
}

}  // namespace
}  // namespace k3::cli
