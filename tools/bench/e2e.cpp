// k3-bench e2e: seconds a token through the real processes, and where they went.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/service_main.h"
#include "common/base/unique_fd.h"
#include "common/checkpoint/work_folder.h"
#include "common/observe/memory.h"
#include "tools/bench/commands.h"
#include "tools/bench/e2e_report.h"
#include "tools/k3/output_file.h"
#include "tools/k3/pipeline_link.h"
#include "tools/k3/pipeline_private.h"
#include "tools/k3/run_generation.h"
#include "tools/k3/run_prepare.h"
#include "tools/k3/run_session.h"
#include "tools/k3/terminal.h"

namespace k3::bench {
namespace {

using cli::PipelineLink;
using cli::Stage;

constexpr const char* kCheckpointHelp =
    "A checkpoint of the released widths with three layers (dense KDA, MoE KDA, MoE MLA), 6.9 GB:\n"
    "  k3 make-checkpoint --out DIR --shape released --layers 3 --experts 64 --vocab 8192 \\\n"
    "    --set linear_attn_config.kda_layers=[1,2] --set linear_attn_config.full_attn_layers=[3]\n"
    "`k3 pack --model DIR [--raw]` packs its trunk, which is then used in place of the shards.";

// More than any checkpoint: a service takes what it has weights for.
constexpr double kEverythingGb = 1e5;
// The streamed case holds this part of the weights.
constexpr std::uint64_t kStreamedPart = 8;

struct E2eOptions {
  cli::RunOptions run;  // what both cases share
  std::uint32_t prompt_tokens = 8;
  std::uint32_t tokens = 16;
  std::uint32_t runs = 3;
  std::string only;  // a case's name; empty for both
  std::optional<double> trunk_gb, cache_gb;
  std::optional<std::filesystem::path> json;

  // The first generated token ends the prefill.
  std::uint32_t generated() const { return tokens + 1; }
  std::uint64_t positions() const { return std::uint64_t{prompt_tokens} + generated(); }
};

double gigabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

cli::RunOptions resident_options(const E2eOptions& options) {
  cli::RunOptions run = options.run;
  run.trunk_gb = run.cache_gb = kEverythingGb;
  return run;
}

// A part of the weights, but never less than what lets reading and computing overlap: two units,
// and the experts of a token in one layer.
cli::RunOptions streamed_options(const E2eOptions& options, const cli::PlanInputs& inputs) {
  const std::uint64_t units = std::max<std::uint64_t>(inputs.trunk_units / kStreamedPart, 2);
  const std::uint64_t experts = std::max<std::uint64_t>(
      inputs.experts / kStreamedPart, static_cast<std::uint64_t>(inputs.config.top_k));
  cli::RunOptions run = options.run;
  // A byte more: a number of gigabytes may come out short of a whole slot.
  run.trunk_gb = options.trunk_gb.value_or(gigabytes(units * inputs.trunk_slot_bytes + 1));
  run.cache_gb = options.cache_gb.value_or(gigabytes(experts * inputs.expert_slot_bytes + 1));
  return run;
}

// Any ids do; these differ from one another, so that a prefill demands many experts.
std::vector<std::int32_t> prompt_ids(std::uint32_t count, std::uint32_t vocab) {
  std::vector<std::int32_t> ids;
  for (std::uint64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<std::int32_t>((13 + i * 7919) % vocab));
  }
  return ids;
}

// The same generation every time: greedy, so that it also demands the same experts.
Result<cli::Generation> generate_once(PipelineLink& link, const E2eOptions& options,
                                      std::uint32_t vocab) {
  cli::GenerationRequest request;
  request.prompt_ids = prompt_ids(options.prompt_tokens, vocab);
  request.max_tokens = options.generated();
  cli::Generation generation = cli::generate(link, request, {});
  if (generation.failure) return tl::unexpected<Error>(std::move(*generation.failure));
  if (generation.tokens.size() != request.max_tokens) {
    return fail(ErrorCode::kStopped, "stopped after {} of {} tokens", generation.tokens.size(),
                request.max_tokens);
  }
  return generation;
}

void add_measured(const cli::Generation& generation, CaseReport& report) {
  PipelineLink::Clock::time_point before = generation.begin;
  std::vector<Split>* to = &report.prefills;
  for (const cli::GeneratedToken& token : generation.tokens) {
    const std::chrono::duration<double> wall = token.at - before;
    to->push_back(split_of(wall.count(), token.timings));
    before = token.at;
    to = &report.tokens;
  }
}

// One generation fills caches and buffers; those after it are measured.
Result<CaseReport> measure(const PipelineLink::Options& connection, const E2eOptions& options,
                           const std::string& name, E2eReport& report) {
  K3_ASSIGN(const std::unique_ptr<PipelineLink> connected, PipelineLink::create(connection));
  PipelineLink& link = *connected;
  K3_TRY(link.wait_until_up());
  K3_ASSIGN(const cli::PipelineFacts facts, cli::describe(link));
  report.fingerprint = facts.fingerprint;
  report.isa = facts.compute.isa;
  report.threads = facts.compute.threads;
  CaseReport measured;
  measured.name = name;
  measured.trunk_bytes = facts.trunk.arena_bytes;
  measured.cache_bytes = facts.experts.arena_bytes;
  K3_TRY(generate_once(link, options, facts.compute.vocab));
  link.refresh_stats();
  for (const Stage stage : cli::kStages) link.stats(stage).start_here();
  for (std::uint32_t run = 0; run < options.runs; ++run) {
    K3_ASSIGN(const cli::Generation generation, generate_once(link, options, facts.compute.vocab));
    add_measured(generation, measured);
  }
  link.refresh_stats();
  if (link.losses() > 0) {
    return fail(ErrorCode::kFailed, "{} times a stage was restarted: nothing was measured",
                link.losses());
  }
  measured.trunk_bytes_read = link.stats(Stage::kTrunk).total("bytes_read");
  measured.experts_bytes_read = link.stats(Stage::kExperts).total("bytes_read");
  return measured;
}

// Starts a pipeline with the budgets of `run`, measures it and stops it.
Status run_case(const E2eOptions& options, const cli::RunOptions& run, const std::string& name,
                int stop_fd, E2eReport& report) {
  const MemoryLimits limits = read_memory_limits();
  K3_ASSIGN(const cli::PlannedModel model, cli::plan_model(run, options.positions(), limits));
  K3_TRY(cli::ensure_expert_index(model.checkpoint, work_folder(run.work, model.checkpoint)));
  cli::tell(fmt::format("{}: {}", name, cli::plan_text(model.plan, limits)));
  K3_ASSIGN(const std::filesystem::path script, cli::find_supervisor_script());
  K3_ASSIGN(cli::PrivatePipeline pipeline,
            cli::PrivatePipeline::start(script, cli::pipeline_settings(run, model)));
  const PipelineLink::Options link{.run_dir = pipeline.run_dir(),
                                   .stop_fd = stop_fd,
                                   .fingerprint = model.checkpoint.fingerprint()};
  Result<CaseReport> measured = measure(link, options, name, report);
  const Status stopped = pipeline.stop();
  K3_TRY(measured);
  report.packed_trunk = model.trunk.has_value();
  report.cases.push_back(std::move(*measured));
  return stopped;
}

Status run_e2e(const E2eOptions& options) {
  if (options.json) K3_TRY(cli::check_output(*options.json, "--json", cli::Output::kReplaced));
  const cli::RunOptions resident = resident_options(options);
  // From here on a signal must stop the pipeline in order.
  K3_ASSIGN(const int stop_fd, stop_signal_fd());
  const UniqueFd stop(stop_fd);
  E2eReport report;
  report.model = std::filesystem::absolute(*options.run.model).string();
  report.prompt_tokens = options.prompt_tokens;
  report.tokens = options.tokens;
  report.runs = options.runs;
  if (options.only != "streamed") {
    K3_TRY(run_case(options, resident, "resident", stop.get(), report));
  }
  if (options.only != "resident") {
    K3_ASSIGN(const cli::PlannedModel all,
              cli::plan_model(options.run, options.positions(), read_memory_limits()));
    K3_TRY(
        run_case(options, streamed_options(options, all.inputs), "streamed", stop.get(), report));
  }
  K3_TRY(cli::print_now(e2e_table(report)));
  return options.json ? cli::write_output(*options.json, e2e_json(report)) : Status{};
}

void add_flags(CLI::App& command, E2eOptions& options) {
  constexpr std::uint32_t kMost = 1u << 20;
  command.add_option("--model", options.run.model, "checkpoint directory")->required();
  command.add_option("--work", options.run.work, "directory of the expert index");
  command.add_option("--trunk", options.run.trunk,
                     "directory of the packed trunk (default: the one in --work, if any)");
  command.add_option("--prompt-tokens", options.prompt_tokens, "positions of the prefill")
      ->check(CLI::Range(1u, kMost))
      ->capture_default_str();
  command.add_option("--tokens", options.tokens, "tokens decoded after the first one")
      ->check(CLI::Range(1u, kMost))
      ->capture_default_str();
  command.add_option("--runs", options.runs, "generations measured, after one that is not")
      ->check(CLI::Range(1u, kMost))
      ->capture_default_str();
  command.add_option("--threads", options.run.threads, "compute threads (default: allowed CPUs)")
      ->check(CLI::Range(1, 1024));
  command.add_option("--isa", options.run.isa, "kernel table (default: the best this CPU has)");
  command.add_option("--only", options.only, "one case: resident or streamed")
      ->check(CLI::IsMember({"resident", "streamed"}));
  command
      .add_option("--trunk-gb", options.trunk_gb,
                  "streamed: memory for the trunk in GB (default: an eighth of it)")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--cache-gb", options.cache_gb,
                  "streamed: expert cache in GB (default: an eighth of the experts)")
      ->check(CLI::PositiveNumber);
  command.add_option("--json", options.json, "write the report, with every token, to this file");
}

}  // namespace

void add_e2e(CLI::App& root, Action& action) {
  auto options = std::make_shared<E2eOptions>();
  CLI::App* command = root.add_subcommand(
      "e2e",
      "Seconds a token through the real processes, and where they went: once with all weights in "
      "memory (resident), once with a part of them (streamed; the system's page cache may hold the "
      "rest).");
  add_flags(*command, *options);
  command->footer(kCheckpointHelp);
  command->callback([options, &action] { action = [options] { return run_e2e(*options); }; });
}

}  // namespace k3::bench
