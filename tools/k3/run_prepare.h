// What a private pipeline needs before it starts: checkpoint, expert index, unit table, plan.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "common/base/result.h"
#include "common/checkpoint/checkpoint.h"
#include "common/observe/memory.h"
#include "tools/k3/run_options.h"
#include "tools/k3/run_plan.h"

namespace k3::cli {

// Default unit size when streaming from the shards: the trunk service's own default.
inline constexpr std::uint64_t kDefaultUnitBytes = 256'000'000;

struct PreparedModel {
  Checkpoint checkpoint;
  std::filesystem::path work;                  // holds experts.k3x
  std::optional<std::filesystem::path> trunk;  // holds trunk.k3t, when the trunk was packed
  std::uint64_t positions = 0;                 // of prompt and answer at most
  RunPlan plan;
};

// Makes sure that `work` holds the expert index of `checkpoint`, building it (with a progress bar)
// when there is none. kWeights when it belongs to another checkpoint; kOutput when it cannot be
// written there, naming --work.
Status ensure_expert_index(const Checkpoint& checkpoint, const std::filesystem::path& work);

// Opens the model of `options` and plans a run of `prompt`. Nothing is started; the expert index is
// written last. Errors: those of Checkpoint::open, check_ids, the packed trunk and plan_run,
// check_plan's refusal, those of ensure_expert_index.
Result<PreparedModel> prepare_model(const RunOptions& options, const Prompt& prompt,
                                    const MemoryLimits& limits);

}  // namespace k3::cli
