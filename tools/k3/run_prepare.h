// What a private pipeline needs before it starts: checkpoint, expert index, unit table, plan.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "common/base/result.h"
#include "common/checkpoint/checkpoint.h"
#include "common/observe/memory.h"
#include "tools/k3/pipeline_private.h"
#include "tools/k3/run_options.h"
#include "tools/k3/run_plan.h"

namespace k3::cli {

// Default unit size when streaming from the shards: the trunk service's own default.
inline constexpr std::uint64_t kDefaultUnitBytes = 256'000'000;

struct PlannedModel {
  Checkpoint checkpoint;
  std::optional<std::filesystem::path> trunk;  // holds trunk.k3t, when the trunk was packed
  PlanInputs inputs;                           // the plan's
  RunPlan plan;
};

// Opens the model of `options` and plans its pipeline for one sequence of `positions` positions;
// nothing is written. Errors: those of Checkpoint::open, the packed trunk and plan_run, and
// check_plan's refusal.
Result<PlannedModel> plan_model(const RunOptions& options, std::uint64_t positions,
                                const MemoryLimits& limits);

// The process table's settings for a private pipeline over `model`, planned from `options`.
PipelineSettings pipeline_settings(const RunOptions& options, const PlannedModel& model);

// Makes sure that `work` holds the expert index of `checkpoint`, building it (with a progress bar)
// when there is none. kWeights when it belongs to another checkpoint; kOutput when it cannot be
// written there, naming --work.
Status ensure_expert_index(const Checkpoint& checkpoint, const std::filesystem::path& work);

// plan_model() for a run of `prompt`, and the expert index. Nothing is started. Errors: those of
// plan_model, check_ids and ensure_expert_index.
Result<PlannedModel> prepare_model(const RunOptions& options, const Prompt& prompt,
                                   const MemoryLimits& limits);

}  // namespace k3::cli
