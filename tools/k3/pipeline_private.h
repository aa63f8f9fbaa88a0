// A pipeline of one's own: a fresh run directory and the supervisor script that fills it.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace k3::cli {

// Settings of the process table (launch/pipeline.toml) as NAME, VALUE.
using PipelineSettings = std::vector<std::pair<std::string, std::string>>;

// The supervisor script: $K3_LAUNCH_DIR/k3-pipeline when that variable is set, else beside the
// binaries of a build tree or of an installation. kUsage naming every place looked at.
Result<std::filesystem::path> find_supervisor_script();

// Owns a running pipeline. It ends with stop(), with this object, or, by its supervisor's own
// doing, with this process. Move-only; one thread.
class PrivatePipeline {
 public:
  // Makes a run directory (mode 0700, under $XDG_RUNTIME_DIR or /tmp) and starts the supervisor
  // there. Stages may still be coming up when it returns. kFailed when the script fails.
  static Result<PrivatePipeline> start(const std::filesystem::path& script,
                                       const PipelineSettings& settings);

  PrivatePipeline(PrivatePipeline&& other) noexcept;
  PrivatePipeline& operator=(PrivatePipeline&& other) noexcept = delete;
  ~PrivatePipeline();

  const std::filesystem::path& run_dir() const { return run_dir_; }

  // Ends all stages (within 5 s) and removes the run directory. kFailed when the script fails.
  Status stop();

 private:
  PrivatePipeline(std::filesystem::path script, std::filesystem::path run_dir)
      : script_(std::move(script)), run_dir_(std::move(run_dir)) {}

  std::filesystem::path script_;
  std::filesystem::path run_dir_;  // empty once stopped
};

}  // namespace k3::cli
