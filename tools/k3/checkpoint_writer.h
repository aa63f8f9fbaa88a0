// Writes a planned checkpoint to disk with a few megabytes of memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "common/base/result.h"
#include "tools/k3/checkpoint_plan.h"

namespace k3::cli {

struct CheckpointContent {
  std::uint64_t seed = 0;
  bool sparse = false;    // tensor data are holes, that is zeros that take no disk,
  int filled_layers = 0;  // except those of this many first layers and, if any, of the top level
};

// Writes the shards, then model.safetensors.index.json and config.json, into `directory`, which is
// created; an unfinished one has no config.json. `progress` is called with bytes done and total.
// kUsage when the directory exists and is not empty; kOutput when it cannot be written, or does not
// fit the disk (both numbers).
Status write_checkpoint(const CheckpointPlan& plan, const std::string& config_json,
                        const CheckpointContent& content, const std::filesystem::path& directory,
                        const std::function<void(std::uint64_t, std::uint64_t)>& progress);

}  // namespace k3::cli
