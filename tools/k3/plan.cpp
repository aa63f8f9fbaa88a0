// k3 plan: the memory a pipeline would take, and whether it fits here.
#include <memory>

#include "common/observe/memory.h"
#include "tools/k3/commands.h"
#include "tools/k3/run_options.h"
#include "tools/k3/run_prepare.h"
#include "tools/k3/terminal.h"

namespace k3::cli {
namespace {

struct PlanCommand {
  RunOptions options;
  std::uint64_t positions = 4096;  // k3-compute's own default
};

Status run_plan(const PlanCommand& command) {
  const MemoryLimits limits = read_memory_limits();
  K3_ASSIGN(const PlannedModel model, plan_model(command.options, command.positions, limits));
  return print_now(plan_text(model.plan, limits));
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
  command->callback([plan, &action] { action = [plan] { return run_plan(*plan); }; });
}

}  // namespace k3::cli
