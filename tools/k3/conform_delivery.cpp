// E12 to E17, E22, E29 and E30: the bytes of every expert, leases under pressure, many fetches.
#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <random>
#include <string>

#include "tools/k3/conform_scenarios.h"
#include "tools/k3/progress_bar.h"

namespace k3::cli {
namespace {

constexpr std::uint32_t kExpertsAFetch = 16;  // at most
constexpr std::uint32_t kHeldBatches = 3;     // at most, while the endurance run fetches on
constexpr std::uint64_t kFetchesBetweenStatistics = 1000;
constexpr const char* kCounters[] = {"fetches",    "hits",       "prefetched_hits", "misses",
                                     "bytes_read", "leases_now", "slots",           "arena_bytes"};

using Counters = std::map<std::string, std::uint64_t>;

std::uint64_t at(const Counters& counters, const std::string& name) {
  const auto found = counters.find(name);
  return found == counters.end() ? 0 : found->second;
}

std::uint64_t requests(const Counters& counters) {
  return at(counters, "hits") + at(counters, "prefetched_hits") + at(counters, "misses");
}

// Fetches at random; holds the latest batches and checks them when it lets go.
class EnduranceRun {
 public:
  EnduranceRun(ConformClient& client, const ConformSetup& setup, const ConformScale& scale)
      : client_(client), setup_(setup), scale_(scale) {
    if (scale.slots > kHeldBatches) largest_ = std::clamp(scale.slots / 4, 1u, 8u);
    largest_ = std::min(largest_, setup.truth.experts());
  }

  Status run() {
    ProgressBar bar("fetching");
    K3_ASSIGN(start_, client_.counters());
    for (std::uint64_t done = 0; done < scale_.fetches; ++done) {
      if (done % kFetchesBetweenStatistics == 0) K3_TRY(compare_counters(done));
      K3_TRY(fetch_one());
      bar.update(done + 1, scale_.fetches);
    }
    K3_TRY(compare_counters(scale_.fetches));
    while (!held_.empty()) K3_TRY(let_go());
    return compare_counters(scale_.fetches);
  }

 private:
  Status fetch_one() {
    // With too few slots for both, nothing may be held while more is asked for.
    while (held_.size() >= (scale_.slots > kHeldBatches ? kHeldBatches : 0)) {
      if (held_.empty()) break;
      K3_TRY(let_go());
    }
    const ExpertTruth& truth = setup_.truth;
    const std::uint32_t layers = truth.layers() - truth.first_layer();
    const auto layer = truth.first_layer() + static_cast<std::uint32_t>(random_() % layers);
    std::vector<std::uint32_t> experts = run_of(0, truth.experts());
    std::shuffle(experts.begin(), experts.end(), random_);
    experts.resize(1 + random_() % largest_);
    asked_ += experts.size();
    K3_ASSIGN(const std::uint64_t batch, client_.fetch(layer, experts));
    K3_TRY(client_.wait(batch));
    setup_.findings.expect(Clause::kEndurance, !client_.batch(batch).refused,
                           "fetch {} of the run is refused", batch);
    held_.push_back(batch);
    return {};
  }

  Status let_go() {
    client_.check_held(held_.front());
    K3_TRY(client_.release(held_.front()));
    held_.pop_front();
    return {};
  }

  Status compare_counters(std::uint64_t fetches) {
    K3_ASSIGN(const Counters now, client_.counters());
    Findings& findings = setup_.findings;
    for (const char* name : kCounters) {
      findings.expect(Clause::kStatistics, now.contains(name), "there is no counter {}", name);
    }
    findings.expect(Clause::kStatistics, at(now, "fetches") - at(start_, "fetches") == fetches,
                    "fetches has grown by {}, expected {}",
                    at(now, "fetches") - at(start_, "fetches"), fetches);
    findings.expect(Clause::kStatistics, requests(now) - requests(start_) == asked_,
                    "hits, prefetched_hits and misses have grown by {} together, expected {}",
                    requests(now) - requests(start_), asked_);
    findings.expect(Clause::kStatistics,
                    at(now, "leases_now") - at(start_, "leases_now") == client_.experts_held(),
                    "leases_now has grown by {}, expected {}",
                    at(now, "leases_now") - at(start_, "leases_now"), client_.experts_held());
    findings.expect(Clause::kStatistics, at(now, "slots") == scale_.slots,
                    "slots is {}, the description says {}", at(now, "slots"), scale_.slots);
    findings.expect(Clause::kStatistics, at(now, "bytes_read") >= at(last_, "bytes_read"),
                    "bytes_read fell from {} to {}", at(last_, "bytes_read"),
                    at(now, "bytes_read"));
    last_ = now;
    return {};
  }

  ConformClient& client_;
  const ConformSetup& setup_;
  const ConformScale& scale_;
  std::mt19937_64 random_{1};
  std::uint32_t largest_ = 1;
  std::deque<std::uint64_t> held_;
  std::uint64_t asked_ = 0;  // experts
  Counters start_;
  Counters last_;
};

// Demands experts number `first`, first + 1, ... of a layer's run, `count` at most, and lets go.
Status demand_and_release(ConformClient& client, std::uint32_t layer, std::uint32_t first,
                          std::uint32_t count) {
  K3_ASSIGN(const std::uint64_t batch, client.demand(layer, run_of(first, count)));
  return client.release(batch);
}

}  // namespace

Status check_every_expert(const ConformSetup& setup, const ConformScale& scale) {
  K3_ASSIGN(const auto client, ConformClient::connect(setup));
  const ExpertTruth& truth = setup.truth;
  const std::uint32_t step = std::min({kExpertsAFetch, scale.slots, truth.experts()});
  const std::uint64_t bytes = truth.total_experts() * truth.expert_bytes();
  // Every one, or every n-th fetch of a model too large for the budget.
  const std::uint64_t stride = bytes / scale.budget_bytes + 1;
  std::uint64_t fetch = 0;
  for (std::uint32_t layer = truth.first_layer(); layer < truth.layers(); ++layer) {
    for (std::uint32_t first = 0; first < truth.experts(); first += step) {
      if (fetch++ % stride != 0) continue;
      const std::uint32_t count = std::min(step, truth.experts() - first);
      K3_TRY(demand_and_release(*client, layer, first, count));
    }
  }
  return client->fence();
}

Status check_leases(const ConformSetup& setup, const ConformScale& scale) {
  const ExpertTruth& truth = setup.truth;
  if (scale.slots < 2) {
    setup.findings.skip(Clause::kLeases, "one slot: nothing can be asked for beside a lease");
    return {};
  }
  K3_ASSIGN(const auto holder, ConformClient::connect(setup));
  K3_ASSIGN(const auto other, ConformClient::connect(setup));
  const std::uint32_t held = std::min({scale.slots / 2, truth.experts(), 4u});
  K3_ASSIGN(const std::uint64_t lease, holder->demand(truth.first_layer(), run_of(0, held)));
  // Twice as many others as there are slots, so that whatever may be evicted is.
  const std::uint64_t most =
      std::min<std::uint64_t>({truth.total_experts(), held + 2 * std::uint64_t{scale.slots},
                               scale.budget_bytes / truth.expert_bytes() + held + 1});
  for (std::uint64_t number = held; number < most; ++number) {
    const ExpertNumber it = expert_number(truth, number);
    K3_TRY(demand_and_release(*other, it.layer, it.expert, 1));
    holder->check_held(lease);
  }
  K3_TRY(holder->release_all());
  return other->release_all();
}

Status check_endurance(const ConformSetup& setup, const ConformScale& scale) {
  K3_ASSIGN(const auto client, ConformClient::connect(setup));
  K3_TRY(EnduranceRun(*client, setup, scale).run());
  return client->release_all();
}

}  // namespace k3::cli
