#include "tools/k3/run_plan.h"

#include <algorithm>

#include "common/plan/compute_memory.h"
#include "tools/k3/report.h"

namespace k3::cli {
namespace {

constexpr std::uint64_t kVocabularyBytes = 60'000'000;
// Code, heap and message buffers of the processes, the supervisor included.
constexpr std::uint64_t kProcessBytes = 150'000'000;
constexpr std::uint64_t kUsablePercent = 80;

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
  const std::uint64_t usable = limits.usable_bytes().value_or(kUnknownUsableBytes);
  std::uint64_t left = less(usable / 100 * kUsablePercent, planned_bytes(plan.lines));

  const std::uint64_t layer_demand =
      std::min(all_experts, u64(inputs.config.top_k) * inputs.expert_slot_bytes);
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

std::string plan_text(const RunPlan& plan, const MemoryLimits& limits) {
  std::string text = "memory plan:\n";
  for (const PlannedMemory& line : plan.lines) {
    text += fmt::format("  {:<20} {:>12}\n", line.what, human_bytes(line.bytes));
  }
  const auto usable = limits.usable_bytes();
  return text + fmt::format("  {:<20} {:>12} of {} usable\n", "sum",
                            human_bytes(planned_bytes(plan.lines)),
                            usable ? human_bytes(*usable) : std::string("unknown"));
}

}  // namespace k3::cli
