#include "tools/k3/pipeline_failure.h"

#include <fmt/format.h>
#include <sys/types.h>

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

// Whether the process has the configuration in `run_dir`, however spelled, on its command line.
// Another one that was given the pid of a dead supervisor does not; a process that has ended and
// that nobody has waited for has no command line any more.
bool supervises(pid_t process, const std::filesystem::path& run_dir) {
  std::ifstream in(fmt::format("/proc/{}/cmdline", process));
  for (std::string word; std::getline(in, word, '\0');) {
    std::error_code ignored;
    if (std::filesystem::equivalent(word, run_dir / "supervisord.conf", ignored)) return true;
  }
  return false;
}

}  // namespace

std::optional<Error> pipeline_failure(const std::filesystem::path& run_dir) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run_dir, error)) {
    if (entry.path().extension() == ".failed") return failed_stage(entry.path());
  }
  if (error) {
    return Error{ErrorCode::kFailed,
                 fmt::format("the pipeline's supervisor has gone: run directory {}: {}",
                             run_dir.string(), error.message())};
  }
  pid_t supervisor = 0;
  std::ifstream(run_dir / "supervisord.pid") >> supervisor;
  if (supervisor > 0 && !supervises(supervisor, run_dir)) {
    return Error{ErrorCode::kFailed, fmt::format("the pipeline's supervisor has gone: pid {} of {}",
                                                 supervisor, run_dir.string())};
  }
  return std::nullopt;
}

Status check_pipeline(const std::filesystem::path& run_dir) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run_dir, error)) {
    const std::filesystem::path& path = entry.path();
    if (path.filename() == "restart.json" || path.extension() == ".life") return {};
  }
  return fail(ErrorCode::kUsage, "no pipeline in {}: {}", run_dir.string(),
              error ? error.message() : "neither restart.json nor a stage's socket is there");
}

}  // namespace k3::cli
