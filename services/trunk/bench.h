// k3-trunk --bench: how fast units come from the disk, without server or client.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <vector>

#include "common/base/result.h"
#include "services/trunk/trunk_service.h"

namespace k3::trunk {

struct BenchOptions {
  TrunkService::Options service;              // as the service takes them; run_dir is not used
  std::vector<std::size_t> depths{1, 2, 4};   // units in flight
  std::vector<double> units_mb;               // over the shards; empty: the service's unit_mb
  double gb = 8;                              // 10^9 bytes at most a measurement
  int repeat = 3;                             // measurements of each row; at least 1
  std::optional<std::filesystem::path> json;  // also written here
};

// For each unit size and depth reads the units of a pass in order, through the service's reader
// with its threads and checksums, each time from a cold page cache; before it the same bytes past
// the page cache, the device's own rate. Prints a table of medians. Errors as TrunkService::create;
// kUsage for several unit sizes of a packed trunk; kOutput when `json` cannot be written.
Status bench(const BenchOptions& options);

}  // namespace k3::trunk
