#include "tools/k3/run_generation.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <vector>

#include "tests/unit/tools/k3/fake_pipeline.h"
#include "tools/k3/run_text.h"

namespace k3::cli {
namespace {

using test::fake_ids;
using test::FakePipeline;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::int32_t> kPrompt = {5, 6, 7};

std::unique_ptr<PipelineLink> link_to(const FakePipeline& pipeline, int stop_fd = -1) {
  auto link = PipelineLink::create({.run_dir = pipeline.run_dir(), .stop_fd = stop_fd});
  EXPECT_TRUE(link);
  const Status up = (*link)->wait_until_up();
  EXPECT_TRUE(up);
  return std::move(*link);
}

GenerationRequest request_for(std::uint32_t tokens) {
  GenerationRequest request;
  request.prompt_ids = kPrompt;
  request.max_tokens = tokens;
  return request;
}

std::vector<std::int32_t> ids_of(const Generation& generation) {
  std::vector<std::int32_t> ids;
  for (const GeneratedToken& token : generation.tokens) ids.push_back(token.id);
  return ids;
}

TEST(Generate, DeliversTokensInOrder) {
  FakePipeline pipeline;
  const auto link = link_to(pipeline);
  std::vector<std::uint32_t> positions;
  std::uint32_t done = 0;
  GenerationEvents events;
  events.on_progress = [&](std::uint32_t now, std::uint32_t) { done = now; };
  events.on_token = [&](const GeneratedToken& token) -> Status {
    positions.push_back(token.position);
    return {};
  };
  const Generation generation = generate(*link, request_for(4), events);
  ASSERT_FALSE(generation.failure) << generation.failure->message;
  EXPECT_EQ(ids_of(generation), fake_ids(kPrompt, 4));
  EXPECT_THAT(positions, ElementsAre(3, 4, 5, 6));
  EXPECT_EQ(done, 3u);
  EXPECT_EQ(generation.reason, ipc::FinishReason::kLength);
  EXPECT_EQ(link->losses(), 0u);
}

TEST(Generate, EndsAtAStopId) {
  FakePipeline pipeline;
  const auto link = link_to(pipeline);
  GenerationRequest request = request_for(20);
  request.stop_ids = {fake_ids(kPrompt, 20)[5]};
  const Generation generation = generate(*link, request, {});
  ASSERT_FALSE(generation.failure);
  EXPECT_EQ(generation.reason, ipc::FinishReason::kStop);
  EXPECT_EQ(ids_of(generation).back(), request.stop_ids[0]);
}

TEST(Generate, AKilledWorkerChangesNothing) {
  for (const std::vector<std::uint32_t>& deaths :
       {std::vector<std::uint32_t>{1}, {5}, {3, 7, 12}, {2, 3, 4}}) {
    FakePipeline pipeline({.compute_dies_after = deaths});
    const auto link = link_to(pipeline);
    std::vector<std::int32_t> delivered;
    GenerationEvents events;
    events.on_token = [&](const GeneratedToken& token) -> Status {
      delivered.push_back(token.id);
      return {};
    };
    const Generation generation = generate(*link, request_for(20), events);
    ASSERT_FALSE(generation.failure) << generation.failure->message;
    EXPECT_EQ(ids_of(generation), fake_ids(kPrompt, 20));
    EXPECT_EQ(delivered, fake_ids(kPrompt, 20));
    EXPECT_EQ(link->losses(), deaths.size());
    EXPECT_EQ(pipeline.requests().size(), deaths.size() + 1);
    const ipc::Generate last = pipeline.requests().back();
    EXPECT_EQ(last.prompt_ids.size() + last.max_tokens, kPrompt.size() + 20);
  }
}

TEST(Generate, AWorkerKilledAfterTheLastTokenIsNotAskedAgain) {
  FakePipeline pipeline({.dies_before_finished = true});
  const auto link = link_to(pipeline);
  const Generation generation = generate(*link, request_for(3), {});
  ASSERT_FALSE(generation.failure);
  EXPECT_EQ(ids_of(generation), fake_ids(kPrompt, 3));
  EXPECT_EQ(generation.reason, ipc::FinishReason::kLength);
  EXPECT_LE(pipeline.requests().size(), 2u);  // 2 when the last tokens died with the worker
}

TEST(Generate, AWorkerKilledAfterAStopIdIsNotAskedAgain) {
  FakePipeline pipeline({.dies_before_finished = true});
  const auto link = link_to(pipeline);
  GenerationRequest request = request_for(20);
  request.stop_ids = {fake_ids(kPrompt, 20)[5]};
  const Generation generation = generate(*link, request, {});
  ASSERT_FALSE(generation.failure);
  EXPECT_EQ(generation.reason, ipc::FinishReason::kStop);
  EXPECT_EQ(ids_of(generation).back(), request.stop_ids[0]);
}

TEST(Generate, LogitsGoOnAfterARestart) {
  FakePipeline pipeline({.compute_dies_after = {2}});
  const auto link = link_to(pipeline);
  GenerationRequest request = request_for(4);
  request.logits = ipc::LogitsWanted::kAll;
  std::vector<std::uint32_t> first_seen;
  GenerationEvents events;
  events.on_logits = [&](std::uint32_t position, std::span<const float> row) {
    EXPECT_EQ(row.size(), test::kFakeVocab);
    if (position == first_seen.size()) first_seen.push_back(position);
  };
  ASSERT_FALSE(generate(*link, request, events).failure);
  EXPECT_THAT(first_seen, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(Generate, PassesOnTheWorkersError) {
  FakePipeline pipeline({.refusal = {ErrorCode::kWeights, "layer 3 expert 17: read failed"}});
  const auto link = link_to(pipeline);
  const Generation generation = generate(*link, request_for(4), {});
  ASSERT_TRUE(generation.failure);
  EXPECT_EQ(generation.failure->code, ErrorCode::kWeights);
  EXPECT_THAT(generation.failure->message, HasSubstr("layer 3 expert 17"));
}

TEST(Generate, TheSuccessorOfAStoppingWorkerIsAsked) {
  FakePipeline pipeline({.refusal = {ErrorCode::kUnavailable, "compute is stopping"}});
  const auto link = link_to(pipeline);
  const Generation generation = generate(*link, request_for(4), {});
  ASSERT_FALSE(generation.failure) << generation.failure->message;
  EXPECT_EQ(ids_of(generation), fake_ids(kPrompt, 4));
}

TEST(Generate, AStageTheSupervisorGaveUpOnEndsTheWait) {
  FakePipeline pipeline({.never_ends = true});
  const auto link = link_to(pipeline);
  GenerationEvents events;
  events.on_token = [&](const GeneratedToken&) -> Status {
    std::ofstream(pipeline.run_dir() / "trunk.failed") << "1\ndied 13 times within 60 s\n";
    return {};
  };
  const Generation generation = generate(*link, request_for(4), events);
  ASSERT_TRUE(generation.failure);
  EXPECT_THAT(generation.failure->message, HasSubstr("trunk: died 13 times"));
  EXPECT_EQ(ids_of(generation), fake_ids(kPrompt, 1));
}

TEST(Generate, AnErrorOfTheListenerEndsTheWorkToo) {
  FakePipeline pipeline({.never_ends = true});
  const auto link = link_to(pipeline);
  GenerationEvents events;
  events.on_token = [](const GeneratedToken&) -> Status {
    return fail(ErrorCode::kOutput, "stdout: full");
  };
  const Generation generation = generate(*link, request_for(4), events);
  ASSERT_TRUE(generation.failure);
  EXPECT_EQ(generation.failure->code, ErrorCode::kOutput);
  EXPECT_EQ(ids_of(generation), fake_ids(kPrompt, 1));
  EXPECT_TRUE(pipeline.cancelled());
}

TEST(Generate, ASignalCancelsAndKeepsTheTokens) {
  FakePipeline pipeline({.never_ends = true});
  int signal_pipe[2];  // stands in for a signalfd
  ASSERT_EQ(pipe(signal_pipe), 0);
  const auto link = link_to(pipeline, signal_pipe[0]);
  GenerationEvents events;
  events.on_token = [&](const GeneratedToken&) -> Status {
    const signalfd_siginfo info{};
    EXPECT_EQ(write(signal_pipe[1], &info, sizeof(info)), static_cast<ssize_t>(sizeof(info)));
    return {};
  };
  const Generation generation = generate(*link, request_for(4), events);
  ASSERT_FALSE(generation.failure) << generation.failure->message;
  EXPECT_EQ(generation.reason, ipc::FinishReason::kCancelled);
  EXPECT_EQ(ids_of(generation), fake_ids(kPrompt, 1));
  EXPECT_TRUE(pipeline.cancelled());
  close(signal_pipe[0]);
  close(signal_pipe[1]);
}

TEST(WaitUntilUp, RefusesAPipelineOfAnotherModel) {
  FakePipeline pipeline;
  auto link = PipelineLink::create({.run_dir = pipeline.run_dir(), .fingerprint = "ffff"});
  ASSERT_TRUE(link);
  const Status up = (*link)->wait_until_up();
  ASSERT_FALSE(up);
  EXPECT_EQ(up.error().code, ErrorCode::kIncompatible);
  EXPECT_THAT(up.error().message, HasSubstr("ffff"));
  EXPECT_THAT(up.error().message, HasSubstr(test::kFakeFingerprint));
}

class TextStreamTest : public ::testing::Test {
 protected:
  // Streams `ids` through `pipeline`; returns what each push printed.
  static std::vector<std::string> stream(FakePipeline& pipeline, bool vocabulary,
                                         const std::vector<std::int32_t>& ids) {
    const auto link = link_to(pipeline);
    TextStream text(*link, vocabulary);
    std::vector<std::string> pieces;
    ::testing::internal::CaptureStdout();
    for (const std::int32_t id : ids) pieces.push_back(text.push(id).value());
    EXPECT_TRUE(text.finish());
    pieces.push_back(::testing::internal::GetCapturedStdout());
    pieces.push_back(text.text().value_or("(none)"));
    return pieces;
  }
};

TEST_F(TextStreamTest, HoldsACharacterBackUntilItIsComplete) {  // C45
  FakePipeline pipeline;
  EXPECT_THAT(stream(pipeline, true, {'a', 0xE2, 0x82, 0xAC, 'b'}),
              ElementsAre("a", "", "", "\u20AC", "b", "a\u20ACb\n", "a\u20ACb"));
}

TEST_F(TextStreamTest, FlushesAnUnfinishedCharacterAtTheEnd) {
  FakePipeline pipeline;
  EXPECT_THAT(stream(pipeline, true, {'a', 0xE2}), ElementsAre("a", "", "a\xE2\n", "a\xE2"));
}

TEST_F(TextStreamTest, ARestartedTokenizerChangesNothing) {
  FakePipeline pipeline({.tokenizer_dies_at = {2, 4}});
  EXPECT_THAT(stream(pipeline, true, {0xE2, 0x82, 0xAC}),
              ElementsAre("", "", "\u20AC", "\u20AC\n", "\u20AC"));
}

TEST_F(TextStreamTest, WithoutAVocabularyItPrintsIds) {
  FakePipeline pipeline;
  EXPECT_THAT(stream(pipeline, false, {12, 7}), ElementsAre("", "", "12 7\n", "(none)"));
}

}  // namespace
}  // namespace k3::cli
