// k3 sim-cache: what caches of several sizes would have hit of a recorded expert trace.
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/observe/bench_output.h"
#include "services/experts/cache_simulation.h"
#include "services/experts/replacement_policy.h"
#include "tools/k3/commands.h"

namespace k3::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  std::filesystem::path trace;
  std::vector<double> gb = {8, 16, 32, 64, 128};
  std::uint64_t expert_bytes = 17'547'264;  // of the released model
  std::size_t top_k = 16;
  bool last_sweep = false;
  std::optional<std::filesystem::path> json;
};

Result<std::size_t> slots_of(double gb, std::uint64_t expert_bytes) {
  const auto slots = static_cast<std::size_t>(std::llround(gb * 1e9)) / expert_bytes;
  if (slots > 0) return slots;
  return fail(ErrorCode::kUsage, "--gb {}: below one expert of {} bytes", gb, expert_bytes);
}

Result<Json> simulate_size(const std::vector<experts::TraceRecord>& trace, double gb,
                           std::size_t slots) {
  Json row = {{"gb", gb}, {"slots", slots}};
  fmt::print("{:>8} {:>8}", gb, slots);
  for (const std::string_view name : experts::policy_names()) {
    K3_ASSIGN(const experts::SimulatedHits hits, experts::simulate(trace, slots, name));
    row["hits"][std::string(name)] = hits.hits;
    fmt::print(" {:>11.2f}", hits.percent());
  }
  const experts::SimulatedHits ceiling = experts::simulate_belady(trace, slots);
  row["hits"]["belady"] = ceiling.hits;
  row["experts"] = ceiling.experts;
  fmt::print(" {:>11.2f}\n", ceiling.percent());
  return row;
}

Status sim_cache(const Flags& flags) {
  K3_ASSIGN(std::vector<experts::TraceRecord> trace, experts::read_trace(flags.trace, flags.top_k));
  if (flags.last_sweep) {
    K3_ASSIGN(trace, experts::last_sweep(trace));
  }
  fmt::print("hits in percent of the experts asked for after the prefill\n{:>8} {:>8}", "GB",
             "slots");
  for (const std::string_view name : experts::policy_names()) fmt::print(" {:>11}", name);
  fmt::print(" {:>11}\n", "belady");
  Json rows = Json::array();
  for (const double gb : flags.gb) {
    K3_ASSIGN(const std::size_t slots, slots_of(gb, flags.expert_bytes));
    K3_ASSIGN(Json row, simulate_size(trace, gb, slots));
    rows.push_back(std::move(row));
  }
  if (!flags.json) return {};
  const Json report = {{"trace", flags.trace.string()},
                       {"expert_bytes", flags.expert_bytes},
                       {"default", experts::kDefaultPolicy},
                       {"rows", rows}};
  return write_report(*flags.json, report.dump(2) + "\n");
}

}  // namespace

void add_sim_cache(CLI::App& root, Action& action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = root.add_subcommand(
      "sim-cache", "what expert caches of several sizes would have hit of a recorded trace");
  command->add_option("trace", flags->trace, "trace of k3 run --trace-experts")->required();
  command->add_option("--gb", flags->gb, "sizes of the cache in GB (10^9 bytes)")
      ->delimiter(',')
      ->check(CLI::Range(1e-9, 1e6))
      ->capture_default_str();
  command->add_option("--expert-bytes", flags->expert_bytes, "bytes of an expert")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--top-k", flags->top_k, "experts a demand, in a trace of pairs")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--last-sweep", flags->last_sweep,
                    "the trace is of whole prefixes: its last sweep, token by token");
  command->add_option("--json", flags->json, "also write the figures to this file");
  command->callback([flags, &action] { action = [flags] { return sim_cache(*flags); }; });
}

}  // namespace k3::cli
