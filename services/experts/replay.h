// k3-experts --replay: a trace of demands through cache and reader, without server or client.
#pragma once

#include <filesystem>
#include <optional>

#include "common/base/result.h"
#include "services/experts/experts_service.h"

namespace k3::experts {

struct ReplayOptions {
  ExpertsService::Options service;            // as the service takes them; run_dir is not used
  std::filesystem::path trace;                // as read_trace takes it
  std::optional<std::filesystem::path> json;  // also written here
};

// Asks for the records one after another: each when the one before has arrived as a whole and is
// released, as the compute worker does, in rounds where a record has more experts than there are
// slots. The cache starts empty, the page cache as it is. Prints hits, GB/s and latencies for each
// phase. Errors as ExpertsService::create and read_trace; kUsage for an expert the model does not
// have; kWeights for a read that fails; kOutput when `json` cannot be written.
Status replay(const ReplayOptions& options);

}  // namespace k3::experts
