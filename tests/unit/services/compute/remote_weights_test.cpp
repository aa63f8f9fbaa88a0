// RemoteTrunk and RemoteExperts over the real services: restarts, small budgets, failed reads. The
// measure is always the bits of an undisturbed run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "common/kernels/select.h"
#include "services/compute/generator.h"
#include "services/compute/remote_experts.h"
#include "services/compute/remote_trunk.h"
#include "tests/unit/services/compute/golden.h"
#include "tests/unit/services/compute/weight_services.h"
#include "tests/unit/support/reference_data.h"
#include "tests/unit/support/service_client.h"

namespace k3::compute::test {
namespace {

using ::testing::HasSubstr;

// What a generation said.
struct Outcome {
  Status status;
  std::vector<std::int32_t> ids;
  std::vector<float> logits;          // of every position
  std::vector<ipc::Timings> timings;  // of every token
};

// A generator over the services; `on_pump` runs before every turn of the loop.
class Worker {
 public:
  Worker(WeightServices& services, float mla_norm_eps = 1e-6f)
      : services_(services), config_(services.config()) {
    config_.mla_norm_eps = mla_norm_eps;
    const Pump wait = [this] { return pump(std::chrono::milliseconds(1000)); };
    trunk = std::move(RemoteTrunk::create(services.loop, services.run_dir(), wait).value());
    experts = std::move(RemoteExperts::create(services.loop, services.run_dir(), config_,
                                              services.fingerprint(), wait)
                            .value());
    model_.emplace(config_, 5, multiplier_, *trunk, *experts,
                   [this] { return pump(std::chrono::milliseconds(0)); });
    generator_.emplace(*model_, *trunk, *experts,
                       Generator::Limits{.chunk = 5, .max_positions = 64});
  }

  Outcome generate(std::vector<std::int32_t> prompt, std::uint32_t tokens) {
    Outcome outcome;
    const ipc::Generate request{.request = 1,
                                .prompt_ids = std::move(prompt),
                                .max_tokens = tokens,
                                .stop_ids = {},
                                .logits = ipc::LogitsWanted::kAll,
                                .recompute = false};
    outcome.status = generator_->run(request, [&](const ipc::Message& message) {
      if (const auto* token = std::get_if<ipc::Token>(&message)) {
        outcome.ids.push_back(token->id);
        outcome.timings.push_back(token->timings);
      }
      if (const auto* logits = std::get_if<ipc::Logits>(&message)) {
        outcome.logits.insert(outcome.logits.end(), logits->values.begin(), logits->values.end());
      }
    });
    return outcome;
  }

  std::function<void()> on_pump = [] {};
  std::unique_ptr<RemoteTrunk> trunk;
  std::unique_ptr<RemoteExperts> experts;

 private:
  Status pump(std::chrono::milliseconds limit) {
    on_pump();
    services_.loop.run_once(limit);
    return {};
  }

  WeightServices& services_;
  ModelConfig config_;
  kernels::Multiplier multiplier_{*kernels::supported_tables().front(), 1};
  std::optional<Model> model_;
  std::optional<Generator> generator_;
};

const std::vector<std::int32_t> kPrompt = {3, 7, 11, 5, 9, 60, 41};

class RemoteWeights : public testing::Test {
 protected:
  RemoteWeights() {
    k3::test::write_tiny_checkpoint(k3::test::TinyOptions{}, temp_.path() / "model");
    services_.emplace(temp_.path() / "model");
  }

  // Of an undisturbed run with everything in memory.
  Outcome undisturbed() {
    services_->start({});
    Worker worker(*services_);
    Outcome outcome = worker.generate(kPrompt, 6);
    EXPECT_TRUE(outcome.status) << outcome.status.error().message;
    EXPECT_EQ(outcome.ids.size(), 6u);
    EXPECT_EQ(outcome.logits.size(), 12u * 96u);
    return outcome;
  }

  k3::test::TempDir temp_;
  std::optional<WeightServices> services_;
};

// C21, C22: a ring of one slot, and a layer's demand beyond the expert slots.
TEST_F(RemoteWeights, SmallestBudgetsGiveTheSameBits) {
  const Outcome expected = undisturbed();
  services_->start(kSmallest);
  Worker worker(*services_);
  ASSERT_EQ(worker.trunk->description()->slots, 1u);
  const Outcome outcome = worker.generate(kPrompt, 6);
  ASSERT_TRUE(outcome.status) << outcome.status.error().message;
  EXPECT_EQ(outcome.logits, expected.logits);
  // What was subscribed ahead serves the next request.
  EXPECT_EQ(worker.generate(kPrompt, 6).logits, expected.logits);
}

// Time is counted once: what the parts leave is arithmetic. Experts may arrive while the trunk is
// awaited.
TEST_F(RemoteWeights, TimingsAreParts) {
  services_->start(kSmallest);
  Worker worker(*services_);
  const Outcome outcome = worker.generate(kPrompt, 6);
  ASSERT_EQ(outcome.timings.size(), 6u);
  for (const ipc::Timings& token : outcome.timings) {
    EXPECT_GT(token.wait_trunk_ns, 0u);
    EXPECT_GT(token.messaging_ns, 0u);
    EXPECT_LT(token.wait_trunk_ns + token.wait_experts_ns + token.messaging_ns, token.total_ns);
  }
}

TEST_F(RemoteWeights, RestartsAnywhereGiveTheSameBits) {
  const Outcome expected = undisturbed();
  // Restarts fall on ever later turns of the loop, until a run is over before them; each run has
  // one of each service, the trunk often with other units than before.
  int disturbed = 0;
  for (int turn = 1;; turn += 23) {
    services_->start(kSmallest);
    Worker worker(*services_);
    ASSERT_TRUE(worker.trunk->description());
    ASSERT_TRUE(worker.experts->wait_until_ready());
    int turns = 0;
    worker.on_pump = [&] {
      ++turns;
      if (turns == turn) {
        services_->start_trunk(turn % 2 ? Budgets{.trunk_gb = 1, .unit_mb = 0.007} : kSmallest);
      }
      if (turns == turn + 7) services_->start_experts(turn % 3 ? kSmallest : Budgets{});
    };
    const Outcome outcome = worker.generate(kPrompt, 6);
    ASSERT_TRUE(outcome.status) << outcome.status.error().message;
    EXPECT_EQ(outcome.logits, expected.logits) << "restarted at turn " << turn;
    if (turns < turn + 8) break;
    EXPECT_EQ(worker.trunk->losses(), 1u);
    EXPECT_EQ(worker.experts->losses(), 1u);
    ++disturbed;
  }
  EXPECT_GE(disturbed, 6);
}

// C25: a unit, an embedding row or an expert that cannot be read ends that request by name; the
// next one works.
TEST_F(RemoteWeights, FailedReadEndsOneRequestByName) {
  const Outcome expected = undisturbed();
  k3::test::FaultFile faults(temp_.path() / "faults");
  for (const std::string name : {"layer 2 expert", "unit 3 (", "token 60"}) {
    faults.clear();
    services_->start(kSmallest);
    Worker worker(*services_);
    ASSERT_TRUE(worker.trunk->description());
    faults.set("error " + name);
    Outcome outcome = worker.generate(kPrompt, 6);
    ASSERT_FALSE(outcome.status) << "no fault was injected for " << name;
    EXPECT_EQ(outcome.status.error().code, ErrorCode::kWeights);
    EXPECT_THAT(outcome.status.error().message, HasSubstr(name));
    faults.clear();
    outcome = worker.generate(kPrompt, 6);
    ASSERT_TRUE(outcome.status) << outcome.status.error().message;
    EXPECT_EQ(outcome.logits, expected.logits);
  }
}

TEST_F(RemoteWeights, AbandonedPassHoldsNoLease) {
  const Outcome expected = undisturbed();
  services_->start(kSmallest);
  Worker worker(*services_);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(worker.trunk->begin_pass(true, true));
    ASSERT_TRUE(worker.trunk->block());
    worker.trunk->abandon();
  }
  ASSERT_TRUE(worker.experts->fetch(1, std::vector<std::uint32_t>{1, 2, 3, 4, 5}));
  ASSERT_TRUE(worker.experts->next());
  worker.experts->release();
  const Outcome outcome = worker.generate(kPrompt, 6);
  ASSERT_TRUE(outcome.status) << outcome.status.error().message;
  EXPECT_EQ(outcome.logits, expected.logits);
  EXPECT_EQ(worker.trunk->losses(), 0u);
}

TEST_F(RemoteWeights, ServiceOfAnotherModelIsRefusedWithBothFingerprints) {
  services_->start({});
  const std::string other(32, 'a');
  const Pump wait = [&]() -> Status {
    services_->loop.run_once(std::chrono::milliseconds(1000));
    return {};
  };
  auto experts = RemoteExperts::create(services_->loop, services_->run_dir(), services_->config(),
                                       other, wait);
  ASSERT_TRUE(experts);
  const Status status = (*experts)->wait_until_ready();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kIncompatible);
  EXPECT_THAT(status.error().message, AllOf(HasSubstr(other), HasSubstr(services_->fingerprint())));
  EXPECT_TRUE((*experts)->failure());
}

// The released layout end to end, with both epsilons of the MLA norms. A float64 evaluation of this
// checkpoint lies up to 5.0e-4 (rms 3.7e-5) from these fp32 goldens, so single logits cannot tell
// the epsilons apart, but their rms distance does: each golden must be the nearer one to its own.
TEST(RemoteGolden, SmallReleasedLayoutMatchesGoldens) {
  K3_REFERENCE_OR_SKIP(reference);
  const auto model = reference / "small_released_layout";
  WeightServices services(model);
  services.start({.trunk_gb = 0.002, .unit_mb = 0.2, .cache_gb = 1});
  const std::string suffixes[] = {"", "_mla_eps_1e-6"};
  const float epsilons[] = {1e-5f, 1e-6f};
  std::vector<float> logits[2];
  for (const std::size_t i : {0, 1}) {
    logits[i] = read_floats(model / ("expected_logits" + suffixes[i] + ".f32"));
    logits[i].resize(30 * 256);  // the last generated id is never fed back
  }
  for (const std::size_t i : {0, 1}) {
    const auto golden = read_json(model / ("expected" + suffixes[i] + ".json"));
    Worker worker(services, epsilons[i]);
    const Outcome outcome =
        worker.generate(golden.at("prompt_ids").get<std::vector<std::int32_t>>(), 24);
    ASSERT_TRUE(outcome.status) << outcome.status.error().message;
    EXPECT_EQ(outcome.ids, golden.at("generated_ids").get<std::vector<std::int32_t>>());
    expect_near(outcome.logits, logits[i], 6e-4f, 0.0f);
    EXPECT_LT(rms_difference(outcome.logits, logits[i]),
              rms_difference(outcome.logits, logits[1 - i]));
  }
}

TEST(RemoteGolden, TinyCheckpointMatchesGolden) {
  K3_REFERENCE_OR_SKIP(reference);
  const auto model = reference / "tiny_checkpoint";
  WeightServices services(model);
  services.start({.trunk_gb = 0.001, .unit_mb = 0.1, .cache_gb = 1});
  const auto golden = read_json(model / "expected.json");
  Worker worker(services, 1e-5f);
  const Outcome outcome =
      worker.generate(golden.at("prompt_ids").get<std::vector<std::int32_t>>(), 24);
  ASSERT_TRUE(outcome.status) << outcome.status.error().message;
  EXPECT_EQ(outcome.ids, golden.at("generated_ids").get<std::vector<std::int32_t>>());
  const auto logits = read_floats(model / "expected_logits.f32");
  expect_near(outcome.logits, std::span(logits).first(28 * 256), 2e-5f, 0.0f);
}

}  // namespace
}  // namespace k3::compute::test
