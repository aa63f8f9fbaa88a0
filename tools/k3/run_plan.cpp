#include "tools/k3/run_plan.h"

#include <algorithm>

namespace k3::cli {
namespace {

constexpr std::uint64_t kFloat = sizeof(float);
constexpr std::uint64_t kVocabularyBytes = 60'000'000;
// Code, heap and message buffers of the processes, the supervisor included.
constexpr std::uint64_t kProcessBytes = 150'000'000;
constexpr std::uint64_t kUsablePercent = 80;

std::uint64_t count(const ModelConfig& config, Attention kind) {
  return static_cast<std::uint64_t>(
      std::count(config.attention.begin(), config.attention.end(), kind));
}

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

std::uint64_t state_bytes(const ModelConfig& config, std::uint64_t positions) {
  const std::uint64_t width = u64(config.kda_width());
  const std::uint64_t kda =
      width * u64(config.kda_head_dim) + 3 * u64(config.conv_taps - 1) * width;
  const std::uint64_t latent = u64(config.kv_rank + config.rope_dim) * positions;
  return kFloat * (count(config, Attention::kKda) * kda + count(config, Attention::kMla) * latent);
}

std::uint64_t activation_bytes(const ModelConfig& config, std::uint64_t rows,
                               std::uint64_t positions) {
  const std::uint64_t hidden = u64(config.hidden);
  const std::uint64_t snapshots = u64(config.layers) / u64(config.residual_block) + 2;
  const std::uint64_t residual = (snapshots + 4) * hidden;
  const std::uint64_t kda = 8 * u64(config.kda_width());
  const std::uint64_t mla =
      u64(config.mla_heads) *
      (2 * u64(config.q_head_dim()) + 2 * u64(config.kv_rank) + 3 * u64(config.v_dim) + positions);
  const std::uint64_t moe = u64(config.experts) + (u64(config.top_k) + 3) * u64(config.latent) +
                            3 * u64(config.expert_width) + 3 * u64(config.shared_width());
  const std::uint64_t mlp = std::max(moe, 3 * u64(config.dense_width));
  return kFloat * rows * (residual + std::max(kda, mla) + mlp + u64(config.vocab));
}

Result<RunPlan> plan_run(const PlanInputs& inputs, const MemoryLimits& limits) {
  K3_TRY(
      check_budget("--trunk-gb", inputs.trunk_budget, inputs.trunk_slot_bytes, "the largest unit"));
  K3_TRY(check_budget("--cache-gb", inputs.expert_budget, inputs.expert_slot_bytes, "one expert"));
  const std::uint64_t all_units = inputs.trunk_units * inputs.trunk_slot_bytes;
  const std::uint64_t all_experts = inputs.experts * inputs.expert_slot_bytes;

  RunPlan plan;
  plan.lines = {
      {"compute state", state_bytes(inputs.config, inputs.positions)},
      {"compute activations", activation_bytes(inputs.config, inputs.chunk, inputs.positions)},
      {"vocabulary", kVocabularyBytes},
      {"processes", kProcessBytes}};
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

}  // namespace k3::cli
