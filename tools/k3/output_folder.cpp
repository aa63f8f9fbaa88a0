// Creating the folder of built files; see output_folder.h.
#include "tools/k3/output_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

namespace k3::cli {

std::filesystem::path default_folder(const Checkpoint& checkpoint) {
  return work_folder(checkpoint.directory() / ".k3", checkpoint);
}

std::filesystem::path work_folder(const std::filesystem::path& base, const Checkpoint& checkpoint) {
  const int layers = checkpoint.config().layers;
  return layers == checkpoint.model_layers() ? base : base / fmt::format("layers-{}", layers);
}

Status make_writable(const std::filesystem::path& folder, std::string_view flag) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::string reason = error.message();
  if (!error) {
    if (::access(folder.c_str(), W_OK | X_OK) == 0) return {};
    reason = std::strerror(errno);
  }
  return fail(ErrorCode::kOutput, "{} cannot be written: {}; name a writable folder with {}",
              folder.string(), reason, flag);
}

}  // namespace k3::cli
