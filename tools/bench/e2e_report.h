// What `k3-bench e2e` measured, and how it is shown: pure numbers, no pipeline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/ipc/messages.h"

namespace k3::bench {

// Where the wall clock of one token, as the client saw it, went. Seconds; the four parts add up to
// `wall`.
struct Split {
  double wall = 0;
  double wait_trunk = 0;
  double wait_experts = 0;
  double computing = 0;  // arithmetic
  // All else: what the worker spent on messages of the weight services besides waiting, and what
  // lies between its own clock and the client's. Of a single token this may fall below zero, when
  // the token before it was late; in a mean over consecutive tokens that cancels out.
  double messaging = 0;

  // Share of the wall clock that was no arithmetic, in percent.
  double overhead_percent() const;
};

// `wall_seconds` is the client's, `timings` the worker's report of the same token.
Split split_of(double wall_seconds, const ipc::Timings& timings);

// Of at least one token.
Split mean_of(const std::vector<Split>& tokens);
double median_wall(const std::vector<Split>& tokens);
double best_wall(const std::vector<Split>& tokens);

// One pipeline with certain budgets.
struct CaseReport {
  std::string name;
  std::uint64_t trunk_bytes = 0;  // arenas
  std::uint64_t cache_bytes = 0;
  std::vector<Split> prefills;         // request to first token, one a run
  std::vector<Split> tokens;           // every later token of every run
  std::uint64_t trunk_bytes_read = 0;  // while these were measured
  std::uint64_t experts_bytes_read = 0;
};

struct E2eReport {
  std::string model;
  std::string fingerprint;
  bool packed_trunk = false;
  std::string isa;
  std::uint32_t threads = 0;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t tokens = 0;  // generated after the first one, a run
  std::uint32_t runs = 0;
  std::vector<CaseReport> cases;
};

// Two rows a case, prefill and decode, and a legend.
std::string e2e_table(const E2eReport& report);

// One JSON object: summaries, and the split of every token.
std::string e2e_json(const E2eReport& report);

}  // namespace k3::bench
