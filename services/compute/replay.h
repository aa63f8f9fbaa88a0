// k3-compute --replay: the passes of a recording again, over local weights, without other
// processes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/base/result.h"

namespace k3::compute {

struct ReplayOptions {
  std::filesystem::path recording;
  std::filesystem::path model;
  std::optional<std::filesystem::path> work;   // of experts.k3x; default: MODEL/.k3
  std::optional<std::filesystem::path> trunk;  // of trunk.k3t; default: the shards as they lie
  int threads = 0;                             // 0: usable_cores()
  std::string isa;                             // empty: the best
  std::optional<std::filesystem::path> json;   // the figures are also written here
};

// Reads the recording to its end, then runs every complete pass and compares all that was recorded
// of it, bit for bit. Prints a line a layer: times over all passes. Errors: kFailed naming the
// first difference (pass, layer, row, element, both values in hexadecimal); kUsage for a recording
// that is unsound or a bad option; kIncompatible when it is of another model; kWeights; kOutput.
Status replay(const ReplayOptions& options);

}  // namespace k3::compute
