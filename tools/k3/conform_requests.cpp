// E11, E18 to E21, E27 and E28: what is described, refused, and accepted without an answer.
#include <limits>

#include "tools/k3/conform_scenarios.h"

namespace k3::cli {
namespace {

// Of one connection (E21).
constexpr std::uint32_t kMostOpenBatches = 1024;

constexpr std::uint32_t kNoSuch = std::numeric_limits<std::uint32_t>::max();

// `request` must be refused (error 2).
Status expect_refusal(ConformClient& client, const ConformSetup& setup, Clause clause,
                      const ipc::Message& request, const std::string& what) {
  K3_ASSIGN(const std::optional<ipc::Envelope> answer, client.ask(request));
  setup.findings.expect(clause, is_error(answer, ErrorCode::kUsage), "{}: {}, expected error 2",
                        what, describe(answer));
  return {};
}

std::vector<std::uint32_t> layers_without_experts(const ExpertTruth& truth) {
  std::vector<std::uint32_t> layers{truth.layers(), kNoSuch};
  if (truth.first_layer() > 0) layers.push_back(truth.first_layer() - 1);
  return layers;
}

Status refuse_unknown(ConformClient& client, const ConformSetup& setup) {
  const ExpertTruth& truth = setup.truth;
  const std::uint32_t layer = truth.first_layer();
  for (const std::uint32_t unknown : layers_without_experts(truth)) {
    K3_TRY(expect_refusal(client, setup, Clause::kUnknownLayer, ipc::Fetch{1, unknown, {0}, 0},
                          fmt::format("fetch of layer {}", unknown)));
  }
  for (const std::uint32_t unknown : {truth.experts(), kNoSuch}) {
    K3_TRY(expect_refusal(client, setup, Clause::kUnknownExpert, ipc::Fetch{1, layer, {unknown}, 0},
                          fmt::format("fetch of layer {} expert {}", layer, unknown)));
  }
  return expect_refusal(client, setup, Clause::kUnknownExpert, ipc::Fetch{1, layer, {0, 0}, 0},
                        "fetch of one expert twice");
}

}  // namespace

Status check_description(const ConformSetup& setup, const ConformScale&) {
  K3_ASSIGN(const auto client, ConformClient::connect(setup));
  K3_ASSIGN(const ipc::ExpertsDescription it, client->describe());
  const ExpertTruth& truth = setup.truth;
  setup.findings.expect(
      Clause::kDescription,
      it.layers == truth.layers() && it.experts == truth.experts() &&
          it.expert_bytes == truth.expert_bytes() && it.slots > 0,
      "{} layers of {} experts of {} bytes in {} slots, the model has {} of {} of {}", it.layers,
      it.experts, it.expert_bytes, it.slots, truth.layers(), truth.experts(), truth.expert_bytes());
  return {};
}

Status check_refusals(const ConformSetup& setup, const ConformScale& scale) {
  K3_ASSIGN(const auto client, ConformClient::connect(setup));
  K3_TRY(refuse_unknown(*client, setup));
  const std::uint32_t layer = setup.truth.first_layer();
  if (scale.slots < setup.truth.experts()) {
    K3_TRY(expect_refusal(*client, setup, Clause::kTooMany,
                          ipc::Fetch{1, layer, run_of(0, scale.slots + 1), 0},
                          fmt::format("fetch of {} experts", scale.slots + 1)));
  } else {
    setup.findings.skip(Clause::kTooMany,
                        fmt::format("{} slots hold all experts of a layer", scale.slots));
  }
  // Nothing was opened: the number serves.
  K3_TRY(client->demand(layer, {0}));
  return client->release_all();
}

Status check_open_batches(const ConformSetup& setup, const ConformScale&) {
  K3_ASSIGN(const auto client, ConformClient::connect(setup));
  const std::uint32_t layer = setup.truth.first_layer();
  K3_ASSIGN(const std::uint64_t first, client->demand(layer, {0}));
  K3_TRY(expect_refusal(*client, setup, Clause::kOpenBatches, ipc::Fetch{first, layer, {0}, 0},
                        "fetch under the number of an open batch"));
  client->check_held(first);
  K3_TRY(client->release(first));
  K3_TRY(client->fetch_as(first, layer, {0}));
  K3_TRY(client->wait(first, Clause::kOpenBatches));
  for (std::uint32_t open = 1; open < kMostOpenBatches; ++open) {
    K3_ASSIGN(const std::uint64_t batch, client->fetch(layer, {0}));
    K3_TRY(client->wait(batch, Clause::kOpenBatches));
  }
  K3_TRY(expect_refusal(*client, setup, Clause::kOpenBatches,
                        ipc::Fetch{first + kMostOpenBatches, layer, {0}, 0},
                        fmt::format("fetch with {} batches open", kMostOpenBatches)));
  return client->release_all();
}

Status check_hints_and_urgency(const ConformSetup& setup, const ConformScale&) {
  K3_ASSIGN(const auto client, ConformClient::connect(setup));
  const ExpertTruth& truth = setup.truth;
  const std::uint32_t layer = truth.layers() - 1;
  const std::uint32_t expert = truth.experts() - 1;
  K3_ASSIGN(const auto answer, client->ask(ipc::Hint{layer, {expert}}));
  setup.findings.expect(Clause::kHints, !answer, "a hint is answered: {}", describe(answer));
  K3_TRY(client->demand(layer, {expert}));
  K3_TRY(expect_refusal(*client, setup, Clause::kHints, ipc::Hint{truth.layers(), {0}},
                        "hint of an unknown layer"));
  K3_TRY(expect_refusal(*client, setup, Clause::kHints, ipc::Hint{layer, {truth.experts()}},
                        "hint of an unknown expert"));
  K3_TRY(client->release_all());
  for (const std::uint8_t urgency : {0, 1, 255}) {
    K3_ASSIGN(const std::uint64_t batch, client->fetch(layer, {0}, urgency));
    K3_TRY(client->wait(batch, Clause::kUrgency));
    K3_TRY(client->release(batch));
  }
  return client->fence();
}

}  // namespace k3::cli
