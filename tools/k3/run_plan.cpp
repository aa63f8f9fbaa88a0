#include "tools/k3/run_plan.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/plan/compute_memory.h"
#include "tools/k3/report.h"

namespace k3::cli {
namespace {

constexpr std::uint64_t kVocabularyBytes = 60'000'000;
// Code, heap and message buffers of the processes, the supervisor included.
constexpr std::uint64_t kProcessBytes = 150'000'000;
// Of the trunk service's ring: one unit in use, one ready, two being read.
constexpr std::uint64_t kRingUnits = 4;

// As a size: configuration numbers are checked positive when they are read.
std::uint64_t u64(int value) { return static_cast<std::uint64_t>(value); }

Status check_budget(const char* flag, std::optional<std::uint64_t> budget, std::uint64_t least,
                    const char* what) {
  if (!budget || *budget >= least) return {};
  return fail(ErrorCode::kUsage, "{} gives {} bytes; {} needs {}", flag, *budget, what, least);
}

// Memory a budget really turns into: whole slots, no more than there are.
std::uint64_t arena_bytes(std::uint64_t budget, std::uint64_t slot_bytes, std::uint64_t slots) {
  return slot_bytes == 0 ? 0 : std::min(budget / slot_bytes, slots) * slot_bytes;
}

std::string size_or_unknown(std::optional<std::uint64_t> bytes) {
  return bytes ? human_bytes(*bytes) : "unknown";
}

std::uint64_t less(std::uint64_t whole, std::uint64_t part) {
  return whole > part ? whole - part : 0;
}

}  // namespace

Result<RunPlan> plan_run(const PlanInputs& inputs, const MemoryLimits& limits) {
  K3_TRY(
      check_budget("--trunk-gb", inputs.trunk_budget, inputs.trunk_slot_bytes, "the largest unit"));
  K3_TRY(check_budget("--cache-gb", inputs.expert_budget, inputs.expert_slot_bytes, "one expert"));
  const std::uint64_t all_units = inputs.trunk_units * inputs.trunk_slot_bytes;
  const std::uint64_t all_experts = inputs.experts * inputs.expert_slot_bytes;

  RunPlan plan;
  plan.positions = inputs.positions;
  plan.lines = {{fmt::format("{} positions", inputs.positions), sequence_bytes(inputs.config, inputs.positions)},
                {"activations", activation_bytes(inputs.config, inputs.chunk)},
                {"vocabulary, at most", kVocabularyBytes},
                {"processes, at most", kProcessBytes}};
  const std::uint64_t layer_demand =
      std::min(all_experts, u64(inputs.config.top_k) * inputs.expert_slot_bytes);
  const std::optional<std::uint64_t> target = preset_bytes(inputs.preset, limits.usable_bytes());
  std::uint64_t left =
      target ? less(*target, planned_bytes(plan.lines))
             : std::min(inputs.trunk_units, kRingUnits) * inputs.trunk_slot_bytes + layer_demand;
  const std::uint64_t for_trunk = less(left, inputs.expert_budget.value_or(layer_demand));
  plan.trunk_budget = inputs.trunk_budget.value_or(
      std::clamp(for_trunk, inputs.trunk_slot_bytes, std::max(all_units, inputs.trunk_slot_bytes)));
  const std::uint64_t trunk_arena =
      arena_bytes(plan.trunk_budget, inputs.trunk_slot_bytes, inputs.trunk_units);
  left = less(left, trunk_arena);
  plan.expert_budget = inputs.expert_budget.value_or(
      std::clamp(left, inputs.expert_slot_bytes, std::max(all_experts, inputs.expert_slot_bytes)));
  plan.lines.push_back({"trunk", trunk_arena});
  plan.lines.push_back(
      {"experts", arena_bytes(plan.expert_budget, inputs.expert_slot_bytes, inputs.experts)});
  return plan;
}

std::uint64_t token_bytes(const PlanInputs& inputs, const RunPlan& plan) {
  const auto share_read = [](std::uint64_t resident, std::uint64_t all) {
    return all == 0 ? 0.0 : 1 - static_cast<double>(resident) / static_cast<double>(all);
  };
  const std::uint64_t slots =
      std::min(plan.trunk_budget / inputs.trunk_slot_bytes, inputs.trunk_units);
  const std::uint64_t pinned = slots == inputs.trunk_units ? slots : less(slots, kRingUnits);
  const std::uint64_t kept =
      inputs.experts == 0 ? 0
                          : std::min(plan.expert_budget / inputs.expert_slot_bytes, inputs.experts);
  const std::uint64_t moe_layers = u64(inputs.config.layers - inputs.config.dense_layers);
  const auto chosen = static_cast<double>(moe_layers * u64(inputs.config.top_k) *
                                          inputs.expert_slot_bytes);
  const double bytes =
      static_cast<double>(inputs.trunk_pass_bytes) * share_read(pinned, inputs.trunk_units) +
      chosen * share_read(kept, inputs.experts);
  return static_cast<std::uint64_t>(bytes);
}

std::string presets_text(PlanInputs inputs, const MemoryLimits& limits,
                         std::optional<double> read_gb_per_s) {
  std::string text = fmt::format("{:<12} {:>11} {:>11} {:>11} {:>12}{}\n", "preset", "memory",
                                 "trunk", "experts", "read/token",
                                 read_gb_per_s ? fmt::format(" {:>9}", "s/token") : "");
  inputs.trunk_budget.reset();
  inputs.expert_budget.reset();
  for (const NamedPreset& named : kPresets) {
    inputs.preset = named.preset;
    const Result<RunPlan> plan = plan_run(inputs, limits);
    K3_CHECK(plan, "only given budgets are refused");
    const std::uint64_t bytes = token_bytes(inputs, *plan);
    text += fmt::format("{:<12} {:>11} {:>11} {:>11} {:>12}", named.name,
                        human_bytes(planned_bytes(plan->lines)), human_bytes(plan->trunk_budget),
                        human_bytes(plan->expert_budget), human_bytes(bytes));
    if (read_gb_per_s) {
      text += fmt::format(" {:>9.2f}", static_cast<double>(bytes) / 1e9 / *read_gb_per_s);
    }
    text += check_plan(plan->lines, limits) ? "\n" : "  does not fit\n";
  }
  return text;
}

std::string limits_text(const MemoryLimits& limits) {
  return fmt::format("memory free: host {}, control groups {}\n",
                     size_or_unknown(limits.host_available_bytes),
                     size_or_unknown(limits.cgroup_free_bytes));
}

std::string plan_text(const RunPlan& plan, const MemoryLimits& limits) {
  std::string text = "memory plan:\n";
  for (const PlannedMemory& line : plan.lines) {
    text += fmt::format("  {:<20} {:>12}\n", line.what, human_bytes(line.bytes));
  }
  return text + fmt::format("  {:<20} {:>12} of {} usable\n", "sum",
                            human_bytes(planned_bytes(plan.lines)),
                            size_or_unknown(limits.usable_bytes()));
}

}  // namespace k3::cli
