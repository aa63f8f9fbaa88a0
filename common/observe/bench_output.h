// What the benchmarks of single stages share: the middle of repeated measurements, the JSON file.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace k3 {

// The smallest of `values` that at least `percent` (0 to 100) of them do not exceed (nearest rank);
// `values` is not empty. Any thread.
double percentile(std::vector<double> values, double percent);

// Writes `content` to the file, device or pipe `path`, replacing what a file held. kOutput naming
// the path.
Status write_report(const std::filesystem::path& path, std::string_view content);

}  // namespace k3
