// Greedy generation over the tiny oracle: ids, logits, limits, stops, failures.
#include "services/compute/generator.h"

#include <gmock/gmock.h>

#include <limits>
#include <variant>

#include "common/kernels/select.h"
#include "tests/unit/services/compute/golden.h"
#include "tests/unit/services/compute/test_model.h"
#include "tests/unit/support/reference_data.h"

namespace k3::compute::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A generator over the oracle, and what it emitted.
struct TestGenerator {
  explicit TestGenerator(
      const Oracle& oracle, std::size_t chunk = 5, Pump pump = [] { return Status{}; })
      : model(oracle, *kernels::supported_tables().front(), 1, chunk, 1000,
              MemoryExperts::Order::kAscending, std::move(pump)),
        generator(model.model, model.trunk, model.experts, {.chunk = chunk, .max_positions = 64}) {}

  Status run(const ipc::Generate& request) {
    emitted.clear();
    K3_TRY(generator.validate(request));
    return generator.run(request, [this](const ipc::Message& m) { emitted.push_back(m); });
  }

  template <class T>
  std::vector<T> all() const {
    std::vector<T> found;
    for (const ipc::Message& message : emitted) {
      if (const T* body = std::get_if<T>(&message)) found.push_back(*body);
    }
    return found;
  }

  std::vector<std::int32_t> ids() const {
    std::vector<std::int32_t> found;
    for (const ipc::Token& token : all<ipc::Token>()) found.push_back(token.id);
    return found;
  }

  TestModel model;
  Generator generator;
  std::vector<ipc::Message> emitted;
};

ipc::Generate request_for(const Oracle& oracle, std::uint32_t tokens) {
  return {.request = 9,
          .prompt_ids = oracle.prompt,
          .max_tokens = tokens,
          .stop_ids = {},
          .logits = ipc::LogitsWanted::kNone,
          .recompute = false};
}

std::vector<std::int32_t> expected_ids(const Oracle& oracle, std::size_t count) {
  const auto first = oracle.full.begin() + oracle.prompt.size();
  return {first, first + count};
}

TEST(Generator, GeneratesTheOraclesIdsCarryingState) {
  K3_REFERENCE_OR_SKIP(reference);
  const Oracle oracle = read_oracle(reference);
  TestGenerator test(oracle);
  ASSERT_TRUE(test.run(request_for(oracle, 20)));
  EXPECT_EQ(test.ids(), expected_ids(oracle, 20));
  const auto progress = test.all<ipc::Progress>();
  ASSERT_EQ(progress.size(), 3u);  // 12 prompt positions in chunks of 5
  EXPECT_EQ(progress[0].done, 5u);
  EXPECT_EQ(progress[2].done, 12u);
  EXPECT_EQ(progress[2].total, 12u);
  const auto tokens = test.all<ipc::Token>();
  EXPECT_EQ(tokens[3].index, 3u);
  EXPECT_EQ(tokens[3].position, 15u);
  ASSERT_TRUE(std::holds_alternative<ipc::Finished>(test.emitted.back()));
  EXPECT_EQ(std::get<ipc::Finished>(test.emitted.back()).reason, ipc::FinishReason::kLength);
  EXPECT_EQ(test.generator.tokens(), 20u);
  EXPECT_EQ(test.generator.prefill_positions(), 12u);
  // Inner chunks of the prompt need no output head.
  EXPECT_EQ(test.model.trunk.passes(), 3 + 19);
  EXPECT_EQ(test.model.trunk.head_passes(), 1 + 19);
}

TEST(Generator, GeneratesTheSameIdsFromTheWholePrefix) {
  K3_REFERENCE_OR_SKIP(reference);
  const Oracle oracle = read_oracle(reference);
  TestGenerator test(oracle, 32);
  ipc::Generate request = request_for(oracle, 20);
  request.recompute = true;
  ASSERT_TRUE(test.run(request));
  EXPECT_EQ(test.ids(), expected_ids(oracle, 20));
}

TEST(Generator, SendsLogitsOfEveryPositionOnceInOrder) {
  K3_REFERENCE_OR_SKIP(reference);
  const Oracle oracle = read_oracle(reference);
  for (const bool recompute : {false, true}) {
    TestGenerator test(oracle);
    ipc::Generate request = request_for(oracle, 4);
    request.logits = ipc::LogitsWanted::kAll;
    request.recompute = recompute;
    ASSERT_TRUE(test.run(request));
    const auto logits = test.all<ipc::Logits>();
    ASSERT_EQ(logits.size(), 15u);  // 12 of the prompt, 3 of generated tokens fed back
    for (std::size_t i = 0; i < logits.size(); ++i) {
      EXPECT_EQ(logits[i].position, i);
      expect_near(logits[i].values, std::span(oracle.logits).subspan(i * 256, 256), 2e-5f, 0.0f);
    }
  }
}

TEST(Generator, SendsLogitsOfTheChoosingPositionsBeforeTheToken) {
  K3_REFERENCE_OR_SKIP(reference);
  const Oracle oracle = read_oracle(reference);
  TestGenerator test(oracle);
  ipc::Generate request = request_for(oracle, 2);
  request.logits = ipc::LogitsWanted::kLast;
  ASSERT_TRUE(test.run(request));
  const auto logits = test.all<ipc::Logits>();
  ASSERT_EQ(logits.size(), 2u);
  EXPECT_EQ(logits[0].position, 11u);
  expect_near(logits[1].values, std::span(oracle.logits).subspan(12 * 256, 256), 2e-5f, 0.0f);
  EXPECT_TRUE(std::holds_alternative<ipc::Logits>(test.emitted[3]));
  EXPECT_TRUE(std::holds_alternative<ipc::Token>(test.emitted[4]));
}

TEST(Generator, SendsTheStopIdAndEnds) {
  K3_REFERENCE_OR_SKIP(reference);
  const Oracle oracle = read_oracle(reference);
  TestGenerator test(oracle);
  ipc::Generate request = request_for(oracle, 20);
  const auto expected = expected_ids(oracle, 20);
  std::size_t first = 3;  // the stop id may occur earlier than where it was taken from
  while (std::find(expected.begin(), expected.begin() + first, expected[first]) !=
         expected.begin() + first) {
    ++first;
  }
  request.stop_ids = {-1, expected[first]};
  ASSERT_TRUE(test.run(request));
  EXPECT_EQ(test.ids(), expected_ids(oracle, first + 1));
  EXPECT_EQ(std::get<ipc::Finished>(test.emitted.back()).reason, ipc::FinishReason::kStop);
}

TEST(Generator, RefusesBadRequestsNamingTheValue) {
  K3_REFERENCE_OR_SKIP(reference);
  const Oracle oracle = read_oracle(reference);
  TestGenerator test(oracle);
  const auto refusal = [&](const ipc::Generate& request) {
    const Status status = test.run(request);
    EXPECT_FALSE(status);
    if (status) return std::string();
    EXPECT_EQ(status.error().code, ErrorCode::kUsage);
    EXPECT_THAT(test.emitted, IsEmpty());
    return status.error().message;
  };
  ipc::Generate request = request_for(oracle, 1);
  request.prompt_ids = {};
  EXPECT_THAT(refusal(request), HasSubstr("empty"));
  request.prompt_ids = {3, 256};
  EXPECT_THAT(refusal(request), HasSubstr("256 is outside 0..255"));
  request.prompt_ids = {-7};
  EXPECT_THAT(refusal(request), HasSubstr("-7"));
  request = request_for(oracle, 0);
  EXPECT_THAT(refusal(request), HasSubstr("max_tokens"));
  request = request_for(oracle, 53);  // 12 + 53 > 64
  EXPECT_THAT(refusal(request), AllOf(HasSubstr("65"), HasSubstr("64")));
  request = request_for(oracle, std::numeric_limits<std::uint32_t>::max());
  EXPECT_THAT(refusal(request), HasSubstr("4294967295"));
}

TEST(Generator, FailedRequestLeavesTheNextOneWhole) {
  K3_REFERENCE_OR_SKIP(reference);
  const Oracle oracle = read_oracle(reference);
  TestGenerator test(oracle);
  test.model.trunk.fail_once("language_model.lm_head.weight");
  const Status failed = test.run(request_for(oracle, 3));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kWeights);
  EXPECT_THAT(test.all<ipc::Token>(), IsEmpty());
  EXPECT_THAT(test.all<ipc::Finished>(), IsEmpty());
  ASSERT_TRUE(test.run(request_for(oracle, 3)));
  EXPECT_EQ(test.ids(), expected_ids(oracle, 3));
}

TEST(Generator, StoppedRequestLeavesTheNextOneWhole) {
  K3_REFERENCE_OR_SKIP(reference);
  const Oracle oracle = read_oracle(reference);
  int layers_left = 3 * 13 + 1 + 5;  // three chunks, a head, five layers of the second token
  TestGenerator test(oracle, 5, [&]() -> Status {
    if (layers_left-- == 0) return fail(ErrorCode::kStopped, "cancelled");
    return {};
  });
  const Status stopped = test.run(request_for(oracle, 3));
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kStopped);
  EXPECT_EQ(test.ids(), expected_ids(oracle, 1));
  ASSERT_TRUE(test.run(request_for(oracle, 3)));
  EXPECT_EQ(test.ids(), expected_ids(oracle, 3));
}

TEST(Generator, NotANumberIsAnErrorNeverAToken) {
  K3_REFERENCE_OR_SKIP(reference);
  Oracle oracle = read_oracle(reference);
  oracle.weights["lm_head_weight"][7 * 128] = std::numeric_limits<float>::quiet_NaN();
  TestGenerator test(oracle);
  const Status status = test.run(request_for(oracle, 1));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kWeights);
  EXPECT_THAT(status.error().message, AllOf(HasSubstr("position 11"), HasSubstr("id 7")));
  EXPECT_THAT(test.all<ipc::Token>(), IsEmpty());
}

TEST(ChooseGreedily, TiesGoToTheLowestId) {
  EXPECT_EQ(*choose_greedily(std::vector<float>{-1.0f, 2.0f, 2.0f}, 0), 1);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(*choose_greedily(std::vector<float>{-infinity, -infinity}, 0), 0);
}

}  // namespace
}  // namespace k3::compute::test
