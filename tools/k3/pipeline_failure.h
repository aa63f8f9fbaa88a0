// Signs that a pipeline will not come back: what its supervisor leaves in the run directory.
#pragma once

#include <filesystem>
#include <optional>

#include "common/base/result.h"

namespace k3::cli {

// Why waiting for a stage of `run_dir` is pointless, or nothing:
// - a file STAGE.failed (first line exit code, second line reason): that code, the reason, the
// stage;
// - the run directory is gone, or its supervisord.pid names a process that is, or that was not
// started with its supervisord.conf: kFailed.
std::optional<Error> pipeline_failure(const std::filesystem::path& run_dir);

// Whether `run_dir` is the run directory of a pipeline, however dead or young: it holds the
// supervisor's restart.json, or, when the stages were started by hand, a socket SERVICE.life.
// kUsage naming the directory.
Status check_pipeline(const std::filesystem::path& run_dir);

}  // namespace k3::cli
