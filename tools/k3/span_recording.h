// Collects spans on a thread of its own, beside a run.
#pragma once

#include <filesystem>
#include <memory>

#include "common/base/result.h"

namespace k3::cli {

// Records the services' spans from start() to write(). One thread calls; the work is done on
// another one, started here, which does not outlive this object.
class SpanRecording {
 public:
  // Waits a few seconds at most for every service to begin. Errors: those of connecting.
  static Result<std::unique_ptr<SpanRecording>> start(const std::filesystem::path& run_dir);
  ~SpanRecording();

  // Ends the recording and writes it to `path` as chrome_trace() does. Call once. kOutput naming
  // `path`.
  Status write(const std::filesystem::path& path);

 private:
  struct State;
  explicit SpanRecording(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace k3::cli
