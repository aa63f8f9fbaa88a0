#include "tools/k3/run_report.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace k3::cli {
namespace {

double seconds_between(PipelineLink::Clock::time_point begin, PipelineLink::Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

std::string name_of(ipc::FinishReason reason) {
  switch (reason) {
    case ipc::FinishReason::kLength:
      return "length";
    case ipc::FinishReason::kStop:
      return "stop";
    case ipc::FinishReason::kCancelled:
      return "cancelled";
  }
  return "";
}

// Wall clock as the user waited, restarts of stages included.
void add_latencies(const Generation& generation, RunReport& report) {
  report.total_seconds = seconds_between(generation.begin, generation.end);
  const auto& tokens = generation.tokens;
  if (tokens.empty()) return;
  report.prefill_seconds = seconds_between(generation.begin, tokens.front().at);
  if (tokens.size() == 1) return;
  std::vector<double> steps;
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    steps.push_back(seconds_between(tokens[i - 1].at, tokens[i].at));
  }
  report.seconds_per_token =
      seconds_between(tokens.front().at, tokens.back().at) / static_cast<double>(tokens.size() - 1);
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end());
  report.median_seconds = *middle;
}

}  // namespace

RunReport make_report(PipelineLink& link, const PipelineFacts& facts,
                      const GenerationRequest& request, const Generation& generation) {
  RunReport report;
  report.fingerprint = facts.fingerprint;
  report.layers = facts.compute.layers;
  report.model_layers = facts.compute.model_layers;
  report.isa = facts.compute.isa;
  report.threads = facts.compute.threads;
  report.trunk_bytes = facts.trunk.arena_bytes;
  report.cache_bytes = facts.experts.arena_bytes;
  report.prompt_ids = request.prompt_ids;
  for (const GeneratedToken& token : generation.tokens) report.generated_ids.push_back(token.id);
  report.finish_reason = generation.failure ? "error" : name_of(generation.reason);
  add_latencies(generation, report);

  const StatsLedger& compute = link.stats(Stage::kCompute);
  const auto seconds_of = [&compute](const char* counter) {
    return static_cast<double>(compute.total(counter)) / 1e9;
  };
  report.wait_trunk_seconds = seconds_of("wait_trunk_ns");
  report.wait_experts_seconds = seconds_of("wait_experts_ns");
  report.messaging_seconds = seconds_of("messaging_ns");
  report.compute_seconds = seconds_of("compute_ns");
  const StatsLedger& experts = link.stats(Stage::kExperts);
  report.trunk_bytes_read = link.stats(Stage::kTrunk).total("bytes_read");
  report.experts_bytes_read = experts.total("bytes_read");
  report.hits = experts.total("hits");
  report.prefetched = experts.total("prefetched_hits");
  report.misses = experts.total("misses");
  report.restarts = link.losses();
  return report;
}

}  // namespace k3::cli
