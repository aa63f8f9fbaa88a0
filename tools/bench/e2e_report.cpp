#include "tools/bench/e2e_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/k3/report.h"

namespace k3::bench {
namespace {

using Json = nlohmann::ordered_json;

std::vector<double> walls_of(const std::vector<Split>& tokens) {
  std::vector<double> walls;
  for (const Split& token : tokens) walls.push_back(token.wall);
  return walls;
}

std::string table_row(const std::string& name, const std::string& phase,
                      const std::vector<Split>& tokens) {
  const Split mean = mean_of(tokens);
  return fmt::format(
      "{:<9} {:<8} {:>9.4f} {:>9.4f} {:>9.4f} = {:>9.4f} + {:>9.4f} + {:>9.4f} + {:>9.4f} {:>9.2f} "
      "%\n",
      name, phase, median_wall(tokens), best_wall(tokens), mean.wall, mean.wait_trunk,
      mean.wait_experts, mean.computing, mean.messaging, mean.overhead_percent());
}

Json split_json(const Split& split) {
  return {{"seconds", split.wall},
          {"wait_trunk_seconds", split.wait_trunk},
          {"wait_experts_seconds", split.wait_experts},
          {"computing_seconds", split.computing},
          {"messaging_seconds", split.messaging}};
}

Json phase_json(const std::vector<Split>& tokens) {
  const Split mean = mean_of(tokens);
  Json each = Json::array();
  for (const Split& token : tokens) each.push_back(split_json(token));
  return {{"median_seconds", median_wall(tokens)},
          {"best_seconds", best_wall(tokens)},
          {"mean", split_json(mean)},
          {"overhead_percent", mean.overhead_percent()},
          {"measured", std::move(each)}};
}

Json case_json(const CaseReport& report) {
  return {
      {"case", report.name},
      {"budgets", {{"trunk", report.trunk_bytes}, {"experts", report.cache_bytes}}},
      {"prefill", phase_json(report.prefills)},
      {"decode", phase_json(report.tokens)},
      {"bytes_read", {{"trunk", report.trunk_bytes_read}, {"experts", report.experts_bytes_read}}}};
}

}  // namespace

double Split::overhead_percent() const { return wall > 0 ? 100 * (1 - computing / wall) : 0; }

Split split_of(double wall_seconds, const ipc::Timings& timings) {
  const auto seconds = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e9; };
  Split split;
  split.wall = wall_seconds;
  split.wait_trunk = seconds(timings.wait_trunk_ns);
  split.wait_experts = seconds(timings.wait_experts_ns);
  split.computing = seconds(timings.total_ns) - split.wait_trunk - split.wait_experts -
                    seconds(timings.messaging_ns);
  split.messaging = split.wall - split.wait_trunk - split.wait_experts - split.computing;
  return split;
}

Split mean_of(const std::vector<Split>& tokens) {
  Split mean;
  const auto share = 1.0 / static_cast<double>(tokens.size());
  for (const Split& token : tokens) {
    mean.wall += token.wall * share;
    mean.wait_trunk += token.wait_trunk * share;
    mean.wait_experts += token.wait_experts * share;
    mean.computing += token.computing * share;
    mean.messaging += token.messaging * share;
  }
  return mean;
}

double median_wall(const std::vector<Split>& tokens) {
  std::vector<double> walls = walls_of(tokens);
  const auto middle = walls.begin() + static_cast<std::ptrdiff_t>(walls.size() / 2);
  std::nth_element(walls.begin(), middle, walls.end());
  return *middle;
}

double best_wall(const std::vector<Split>& tokens) {
  const std::vector<double> walls = walls_of(tokens);
  return *std::min_element(walls.begin(), walls.end());
}

std::string e2e_table(const E2eReport& report) {
  std::string out =
      fmt::format("{}: {} trunk, {}, {} threads; {} runs of {} prompt tokens and {} decoded ones\n",
                  report.model, report.packed_trunk ? "packed" : "unpacked", report.isa,
                  report.threads, report.runs, report.prompt_tokens, report.tokens);
  out += fmt::format("{:<9} {:<8} {:>9} {:>9} {:>9}   {:>9}   {:>9}   {:>9}   {:>9} {:>11}\n",
                     "case", "seconds", "median", "best", "mean", "trunk", "experts", "computing",
                     "messaging", "overhead");
  for (const CaseReport& each : report.cases) {
    out += table_row(each.name, "prefill", each.prefills);
    out += table_row(each.name, "decode", each.tokens);
  }
  for (const CaseReport& each : report.cases) {
    out += fmt::format(
        "{}: trunk memory {}, expert cache {}; read meanwhile: trunk {}, experts {}\n", each.name,
        cli::human_bytes(each.trunk_bytes), cli::human_bytes(each.cache_bytes),
        cli::human_bytes(each.trunk_bytes_read), cli::human_bytes(each.experts_bytes_read));
  }
  return out +
         "prefill: request to first token; decode: one token; both as the client saw them. The "
         "mean is the sum of waiting\nfor trunk and experts, computing and messaging; overhead is "
         "the share of all but computing.\n";
}

std::string e2e_json(const E2eReport& report) {
  Json cases = Json::array();
  for (const CaseReport& each : report.cases) cases.push_back(case_json(each));
  const Json json = {{"model", report.model},
                     {"fingerprint", report.fingerprint},
                     {"packed_trunk", report.packed_trunk},
                     {"isa", report.isa},
                     {"threads", report.threads},
                     {"prompt_tokens", report.prompt_tokens},
                     {"tokens", report.tokens},
                     {"runs", report.runs},
                     {"cases", std::move(cases)}};
  // Paths need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace k3::bench
