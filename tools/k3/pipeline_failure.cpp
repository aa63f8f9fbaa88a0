#include "tools/k3/pipeline_failure.h"

#include <fmt/format.h>
#include <signal.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

namespace k3::cli {
namespace {

// A stage's exit code as an error; codes no binary of ours uses are a plain failure.
ErrorCode error_code_of(int code) {
  for (const ErrorCode known : {ErrorCode::kUsage, ErrorCode::kOutput, ErrorCode::kWeights,
                                ErrorCode::kStopped, ErrorCode::kIncompatible, ErrorCode::kBug}) {
    if (code == static_cast<int>(known)) return known;
  }
  return ErrorCode::kFailed;
}

Error failed_stage(const std::filesystem::path& file) {
  std::ifstream in(file);
  int code = 1;
  std::string reason;
  in >> code;
  std::getline(in >> std::ws, reason);
  return {error_code_of(code),
          fmt::format("the supervisor gave up on {}: {}", file.stem().string(), reason)};
}

}  // namespace

std::optional<Error> pipeline_failure(const std::filesystem::path& run_dir) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run_dir, error)) {
    if (entry.path().extension() == ".failed") return failed_stage(entry.path());
  }
  if (error) {
    return Error{ErrorCode::kFailed,
                 fmt::format("run directory {}: {}", run_dir.string(), error.message())};
  }
  pid_t supervisor = 0;
  std::ifstream(run_dir / "supervisord.pid") >> supervisor;
  if (supervisor > 0 && kill(supervisor, 0) != 0 && errno == ESRCH) {
    return Error{ErrorCode::kFailed, fmt::format("the supervisor of {} (pid {}) has ended",
                                                 run_dir.string(), supervisor)};
  }
  return std::nullopt;
}

}  // namespace k3::cli
