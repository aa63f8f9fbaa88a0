// k3 plan: the memory a pipeline would take, and whether it fits here.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "common/observe/memory.h"
#include "tools/k3/commands.h"
#include "tools/k3/report.h"
#include "tools/k3/run_options.h"
#include "tools/k3/run_prepare.h"
#include "tools/k3/terminal.h"

namespace k3::cli {
namespace {

struct PlanCommand {
  RunOptions options;
  std::uint64_t positions = 4096;  // k3-compute's own default
  bool presets = false;
  std::optional<double> read_gb_per_s;
};

Status run_plan(const PlanCommand& command) {
  const MemoryLimits limits = read_memory_limits();
  K3_ASSIGN(const PlannedModel model, plan_model(command.options, command.positions, limits));
  if (command.presets) {
    return print_now(limits_text(limits) +
                     presets_text(model.inputs, limits, command.read_gb_per_s));
  }
  return print_now(plan_text(model.plan, limits) +
                   fmt::format("  {:<20} {:>12}\n", "read a token, at most",
                               human_bytes(token_bytes(model.inputs, model.plan))));
}

}  // namespace

void add_plan(CLI::App& root, Action& action) {
  auto plan = std::make_shared<PlanCommand>();
  CLI::App* command =
      root.add_subcommand("plan", "the memory a pipeline takes; refused if too much");
  command->add_option("--model", plan->options.model, "checkpoint directory")->required();
  add_memory_flags(*command, plan->options);
  command
      ->add_option("--max-positions", plan->positions,
                   "most positions of prompt and answer together")
      ->check(CLI::Range(std::uint64_t{2}, std::uint64_t{1} << 30))
      ->capture_default_str();
  CLI::Option* const presets = command->add_flag(
      "--presets", plan->presets, "what every preset would hold and read on this machine");
  command
      ->add_option("--read-gb-s", plan->read_gb_per_s,
                   "GB the disk reads a second: adds seconds a token to --presets")
      ->check(CLI::PositiveNumber)
      ->needs(presets);
  command->callback([plan, &action] { action = [plan] { return run_plan(*plan); }; });
}

}  // namespace k3::cli
