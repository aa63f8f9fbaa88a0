// The memory plan of a private pipeline: one formula for the automatic budgets and for the refusal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/checkpoint/model_config.h"
#include "common/observe/memory.h"
#include "common/plan/preset.h"

namespace k3::cli {

// Prompt positions of one prefill pass when --chunk is absent: the compute worker's own default.
inline constexpr std::uint64_t kDefaultChunk = 32;

struct PlanInputs {
  ModelConfig config;
  std::uint64_t trunk_units = 0;
  std::uint64_t trunk_slot_bytes = 0;   // of the largest unit
  std::uint64_t experts = 0;            // in all layers; 0 when every layer is dense
  std::uint64_t expert_slot_bytes = 0;  // of one expert
  std::uint64_t positions = 0;          // prompt and generated tokens
  std::uint64_t chunk = kDefaultChunk;
  std::uint64_t trunk_pass_bytes = 0;  // read in a pass when nothing is resident
  Preset preset = Preset::kAuto;       // sizes the budgets that are not given
  std::optional<std::uint64_t> trunk_budget;   // bytes, when the user gave one
  std::optional<std::uint64_t> expert_budget;  // bytes, when the user gave one
};

struct RunPlan {
  std::uint64_t trunk_budget = 0;  // bytes
  std::uint64_t expert_budget = 0;
  std::uint64_t positions = 0;       // of the longest sequence
  std::vector<PlannedMemory> lines;  // what each part will hold at most
};

// Budgets that are not given share the preset's bytes (preset_bytes) less the fixed parts: the trunk
// first, up to all its units, while the experts keep one token's demand of one layer; then the
// experts, up to all of them. Preset::kFloor gives the trunk the four units of a ring that reads
// ahead, the experts that demand. kUsage when a given budget is below one unit or one expert, with
// both numbers. Whether the plan fits is check_plan's answer.
Result<RunPlan> plan_run(const PlanInputs& inputs, const MemoryLimits& limits);

// Bytes a decoded token reads at most on average: the units that are not pinned, and of a token's
// experts the share that is not resident, as if all were chosen equally often. Repeated choices,
// which a cache keeps, make it less.
std::uint64_t token_bytes(const PlanInputs& inputs, const RunPlan& plan);

// A line a preset for the terminal: memory, budgets, bytes a token, and whether it fits `limits`.
// With `read_gb_per_s`, the seconds a token takes to read.
std::string presets_text(PlanInputs inputs, const MemoryLimits& limits,
                         std::optional<double> read_gb_per_s);

// One line for the terminal: what the host and the control groups leave free, "unknown" where that
// cannot be read.
std::string limits_text(const MemoryLimits& limits);

// The plan for the terminal: a line a part, their sum, the limit.
std::string plan_text(const RunPlan& plan, const MemoryLimits& limits);

}  // namespace k3::cli
