#include "tools/k3/output_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

namespace k3::cli {

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
