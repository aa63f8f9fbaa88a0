// E31: the service killed and started again.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <thread>

#include "tools/k3/conform_scenarios.h"

namespace k3::cli {
namespace {

constexpr std::chrono::milliseconds kRetryPeriod{20};

// Connects as soon as the endpoint takes clients again.
Result<std::unique_ptr<ConformClient>> reconnect(const ConformSetup& setup) {
  const auto deadline = std::chrono::steady_clock::now() + setup.limit;
  while (true) {
    auto client = ConformClient::connect(setup);
    if (client || std::chrono::steady_clock::now() > deadline) return client;
    std::this_thread::sleep_for(kRetryPeriod);
  }
}

}  // namespace

Status check_restart(const ConformSetup& setup, const ConformScale& scale) {
  if (!scale.restart_command) {
    setup.findings.skip(Clause::kRestart, "needs --restart-command");
    return {};
  }
  Findings& findings = setup.findings;
  const std::uint32_t layer = setup.truth.first_layer();
  K3_ASSIGN(const auto before, ConformClient::connect(setup));
  K3_TRY(before->demand(layer, {0}));
  const int status = std::system(scale.restart_command->c_str());
  if (!findings.expect(Clause::kRestart, status == 0, "the restart command ends with status {}",
                       status) ||
      !findings.expect(Clause::kRestart, before->peer().hung_up(),
                       "the lifeline of before does not end")) {
    return {};
  }
  K3_ASSIGN(const auto after, reconnect(setup));
  findings.expect(Clause::kRestart, after->incarnation() != before->incarnation(),
                  "incarnation {:016x} before and after", after->incarnation());
  const std::set<std::uint64_t> old = before->generations();
  for (const std::uint64_t generation : after->generations()) {
    findings.expect(Clause::kRestart, !old.contains(generation),
                    "a region has generation {:016x} before and after", generation);
  }
  // Nothing of the old connection counts: the number of its open batch serves.
  K3_ASSIGN(const std::uint64_t again, after->fetch(layer, {0}));
  K3_TRY(after->wait(again, Clause::kRestart));
  return after->release_all();
}

}  // namespace k3::cli
