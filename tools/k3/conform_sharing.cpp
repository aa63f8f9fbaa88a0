// E23 to E25: clients that want the same slots.
#include <algorithm>

#include "tools/k3/conform_scenarios.h"

namespace k3::cli {

Status check_waiting(const ConformSetup& setup, const ConformScale& scale) {
  if (const auto why = why_not_exhaustible(setup, scale)) {
    setup.findings.skip(Clause::kWaiting, *why);
    return {};
  }
  K3_ASSIGN(const auto hoarder, ConformClient::connect(setup));
  K3_TRY(lease_every_slot(*hoarder, setup, scale));
  K3_ASSIGN(const auto waiter, ConformClient::connect(setup));
  const ExpertNumber wanted = expert_number(setup.truth, scale.slots);
  K3_ASSIGN(const std::uint64_t batch, waiter->fetch(wanted.layer, {wanted.expert}));
  // Both are still answered while the fetch waits.
  K3_TRY(waiter->fence());
  K3_TRY(waiter->counters());
  setup.findings.expect(Clause::kWaiting, waiter->batch(batch).arrived.empty(),
                        "an expert arrives although all {} slots are leased", scale.slots);
  hoarder->check_held(1);
  K3_TRY(hoarder->release(1));
  K3_TRY(waiter->wait(batch, Clause::kWaiting));
  K3_TRY(hoarder->release_all());
  return waiter->release_all();
}

Status check_release(const ConformSetup& setup, const ConformScale& scale) {
  K3_ASSIGN(const auto client, ConformClient::connect(setup));
  K3_ASSIGN(const auto answer, client->ask(ipc::BatchRelease{77}));
  setup.findings.expect(Clause::kRelease, !answer, "a release is answered: {}", describe(answer));
  if (why_not_exhaustible(setup, scale)) return {};
  K3_ASSIGN(const auto hoarder, ConformClient::connect(setup));
  K3_TRY(lease_every_slot(*hoarder, setup, scale));
  const ExpertNumber wanted = expert_number(setup.truth, scale.slots);
  K3_ASSIGN(const std::uint64_t waiting, client->fetch(wanted.layer, {wanted.expert}));
  K3_TRY(client->release(waiting));
  K3_TRY(client->fence());
  K3_TRY(hoarder->release_all());
  // What the service would still send of the cancelled batch comes before the next batch is there.
  K3_ASSIGN(const std::uint64_t next, client->fetch(wanted.layer, {wanted.expert}));
  K3_TRY(client->wait(next, Clause::kRelease));
  return client->release_all();
}

Status check_two_clients(const ConformSetup& setup, const ConformScale& scale) {
  constexpr std::uint32_t kRounds = 50;
  if (scale.slots < 2) {
    setup.findings.skip(Clause::kClients, "one slot: two clients cannot hold a lease at once");
    return {};
  }
  const ExpertTruth& truth = setup.truth;
  K3_ASSIGN(const auto left, ConformClient::connect(setup));
  K3_ASSIGN(const auto right, ConformClient::connect(setup));
  const std::uint32_t count = std::min({scale.slots / 2, truth.experts(), 3u});
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const std::uint32_t reach = truth.experts() - count + 1;
    // Under the same numbers, of one layer and of two, with and without experts in common.
    const std::uint32_t other = round % 2 == 0 ? truth.first_layer() : truth.layers() - 1;
    K3_ASSIGN(const std::uint64_t mine,
              left->fetch(truth.first_layer(), run_of(round % reach, count)));
    K3_ASSIGN(const std::uint64_t theirs, right->fetch(other, run_of(round * 2 % reach, count)));
    K3_TRY(left->wait(mine));
    K3_TRY(right->wait(theirs));
    setup.findings.expect(Clause::kClients,
                          !left->batch(mine).refused && !right->batch(theirs).refused,
                          "two clients with batch {}: one is refused", mine);
    K3_TRY(right->release(theirs));
    K3_TRY(right->fence());
    K3_ASSIGN(const auto answer, left->ask(ipc::Fetch{mine, truth.first_layer(), {0}, 0}));
    setup.findings.expect(Clause::kClients, is_error(answer, ErrorCode::kUsage),
                          "batch {} ends with that number of another client", mine);
    left->check_held(mine);
    K3_TRY(left->release(mine));
  }
  K3_TRY(right->release_all());
  return left->release_all();
}

}  // namespace k3::cli
