// The whole model against the tiny oracle, and its promise of identical bits.
#include "services/compute/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/kernels/select.h"
#include "tests/unit/services/compute/golden.h"
#include "tests/unit/services/compute/test_model.h"
#include "tests/unit/support/reference_data.h"

namespace k3::compute::test {
namespace {

std::int32_t argmax(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST(Model, MatchesOracleTeacherForced) {
  K3_REFERENCE_OR_SKIP(reference);
  const Oracle oracle = read_oracle(reference);
  TestModel test(oracle, kernels::reference_table(), 1, 32);
  const auto logits = test.all_logits(oracle.full, 32);
  expect_near(logits, oracle.logits, 2e-5f, 0.0f);
  for (std::size_t i = 0; i < oracle.full.size(); ++i) {
    EXPECT_EQ(argmax({logits.data() + i * 256, 256}), oracle.predictions[i]) << "position " << i;
  }
}

// Chunks of one row, of chunk + 1 rows (32 = 31 + 1), of whole blocks of the residual attention,
// and the whole prefix at once (C39, C40).
TEST(Model, BitsDoNotDependOnChunkThreadsTableBlocksOrArrival) {
  K3_REFERENCE_OR_SKIP(reference);
  const Oracle oracle = read_oracle(reference);
  const auto expected =
      TestModel(oracle, kernels::reference_table(), 1, 32).all_logits(oracle.full, 32);
  for (const kernels::KernelTable* table : kernels::supported_tables()) {
    for (const std::size_t chunk : {1, 5, 7, 12, 31, 32}) {
      for (const int threads : chunk == 1 || chunk == 12 ? std::vector{1, 2} : std::vector{1}) {
        TestModel test(
            oracle, *table, threads, chunk, chunk * 3,
            chunk % 2 ? MemoryExperts::Order::kAscending : MemoryExperts::Order::kDescending);
        EXPECT_EQ(test.all_logits(oracle.full, chunk), expected)
            << table->name << ", " << threads << " threads, chunk " << chunk;
      }
    }
  }
}

TEST(Model, RowsOfSeveralSessionsDoNotMix) {
  K3_REFERENCE_OR_SKIP(reference);
  const Oracle oracle = read_oracle(reference);
  TestModel test(oracle, kernels::reference_table(), 1, 8);
  std::vector<std::int32_t> other(oracle.full.rbegin(), oracle.full.rbegin() + 4);
  const auto alone = test.all_logits(std::span(oracle.full).first(4), 4);
  const auto other_alone = test.all_logits(other, 4);

  Session first = test.model.new_session();
  Session second = test.model.new_session();
  std::vector<Row> rows;
  for (std::uint32_t i = 0; i < 4; ++i) {
    rows.push_back({oracle.full[i], &first, i, true});
    rows.push_back({other[i], &second, i, true});
  }
  const auto mixed = test.model.forward(rows, false);
  ASSERT_TRUE(mixed);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto row = [&](std::span<const float> logits, std::size_t r) {
      return std::vector<float>(logits.begin() + r * 256, logits.begin() + (r + 1) * 256);
    };
    EXPECT_EQ(row(*mixed, 2 * i), row(alone, i));
    EXPECT_EQ(row(*mixed, 2 * i + 1), row(other_alone, i));
  }
}

TEST(Model, ReadsTheHeadOnlyWhenLogitsAreWanted) {
  K3_REFERENCE_OR_SKIP(reference);
  const Oracle oracle = read_oracle(reference);
  TestModel test(oracle, kernels::reference_table(), 1, 2);
  Session session = test.model.new_session();
  const auto none =
      test.model.forward(std::vector<Row>{{oracle.full[0], &session, 0, false}}, true);
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->empty());
  EXPECT_EQ(test.trunk.head_passes(), 0);
  const auto one = test.model.forward(
      std::vector<Row>{{oracle.full[1], &session, 1, false}, {oracle.full[2], &session, 2, true}},
      true);
  ASSERT_TRUE(one);
  EXPECT_EQ(test.trunk.head_passes(), 1);
  expect_near(*one, std::span(oracle.logits).subspan(2 * 256, 256), 2e-5f, 0.0f);
}

// C25, C38: a broken pass ends with the error; after a reset the session is as new.
TEST(Model, FailsByNameAndWorksAgain) {
  K3_REFERENCE_OR_SKIP(reference);
  const Oracle oracle = read_oracle(reference);
  TestModel test(oracle, kernels::reference_table(), 1, 8);
  const auto ids = std::span(oracle.full).first(8);
  const auto expected = test.all_logits(ids, 8);
  Session session = test.model.new_session();
  std::vector<Row> rows;
  for (std::uint32_t i = 0; i < 8; ++i) rows.push_back({ids[i], &session, i, true});

  test.trunk.fail_once("language_model.model.layers.7.self_attn.q_b_proj.weight");
  auto failed = test.model.forward(rows, true);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kWeights);
  EXPECT_NE(failed.error().message.find("layers.7.self_attn.q_b_proj"), std::string::npos);
  EXPECT_EQ(test.trunk.abandoned(), 1);

  test.experts.fail_once_in(5);
  session.reset();
  failed = test.model.forward(rows, true);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("layer 5 expert"), std::string::npos);
  EXPECT_FALSE(test.experts.leased());

  session.reset();
  const auto works = test.model.forward(rows, true);
  ASSERT_TRUE(works);
  EXPECT_EQ(std::vector<float>(works->begin(), works->end()), expected);
}

TEST(Model, StopsWithinALayerWhenThePumpSaysSo) {
  K3_REFERENCE_OR_SKIP(reference);
  const Oracle oracle = read_oracle(reference);
  const auto order = trunk_order(oracle.config);
  const kernels::Multiplier multiplier(kernels::reference_table(), 1);
  MemoryTrunk trunk(order, oracle.weights, 1000);
  MemoryExperts experts(oracle.config, oracle.weights, MemoryExperts::Order::kAscending);
  int layers = 0;
  Model model(oracle.config, 1, multiplier, trunk, experts, [&]() -> Status {
    if (++layers == 4) return fail(ErrorCode::kStopped, "cancelled");
    return {};
  });
  Session session = model.new_session();
  const auto stopped = model.forward(std::vector<Row>{{1, &session, 0, true}}, true);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kStopped);
  EXPECT_EQ(layers, 4);
  EXPECT_EQ(trunk.abandoned(), 1);
}

// C41: decay at its bound and decay of one, for thousands of steps, in a model whose gates are
// driven there by dt_bias.
TEST(Model, StaysFiniteWithDecayAtItsBounds) {
  K3_REFERENCE_OR_SKIP(reference);
  for (const float bias : {1e4f, -1e4f}) {
    Oracle oracle = read_oracle(reference);
    oracle.config.layers = 1;
    oracle.config.attention.resize(1);
    auto& dt_bias = oracle.weights["layers_0_self_attn_dt_bias"];
    std::fill(dt_bias.begin(), dt_bias.end(), bias);
    TestModel test(oracle, *kernels::supported_tables().front(), 1, 32);
    std::vector<std::int32_t> ids(2000);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * 7 % 256);
    const auto logits = test.all_logits(ids, 32);
    EXPECT_TRUE(std::all_of(logits.begin(), logits.end(), [](float v) { return std::isfinite(v); }))
        << "dt_bias " << bias;
  }
}

TEST(Model, HoldsWhatTheMemoryPlanSays) {
  K3_REFERENCE_OR_SKIP(reference);
  const Oracle oracle = read_oracle(reference);
  for (const std::size_t rows : {1, 7}) {
    TestModel test(oracle, kernels::reference_table(), 1, rows);
    EXPECT_EQ(test.model.bytes(), activation_bytes(oracle.config, rows));
    test.all_logits(oracle.full, rows);
    EXPECT_EQ(test.model.bytes(), activation_bytes(oracle.config, rows));
  }
}

TEST(Session, HoldsWhatTheMemoryPlanSays) {
  K3_REFERENCE_OR_SKIP(reference);
  const ModelConfig config = oracle_config(reference);
  Session session(config);
  for (int layer = 0; layer < config.layers; ++layer) {
    if (config.attention[layer] == Attention::kMla) session.latents(layer).reserve(300);
  }
  EXPECT_EQ(session.bytes(), sequence_bytes(config, 300));
}

}  // namespace
}  // namespace k3::compute::test
