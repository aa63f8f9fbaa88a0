#include "tools/k3/output_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>

#include "common/base/file.h"

namespace k3::cli {
namespace {

constexpr int kReaderLimitMs = 30'000;
constexpr int kMaxLinks = 40;  // as the kernel's own limit

tl::unexpected<Error> cannot_write(const std::filesystem::path& path, int error) {
  // What the system says of a pipe without a reader is "no such device or address".
  const char* const reason = error == ENXIO ? "nobody reads this pipe" : std::strerror(error);
  return fail(ErrorCode::kOutput, "{}: {}", path.string(), reason);
}

std::optional<struct stat> status_of(const std::filesystem::path& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return std::nullopt;
  return found;
}

// Whether the file is stdout or stderr of this process, as /dev/stdout is: other output goes there.
bool is_terminal_stream(const struct stat& file) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat stream {};
    if (::fstat(fd, &stream) == 0 && stream.st_dev == file.st_dev && stream.st_ino == file.st_ino) {
      return true;
    }
  }
  return false;
}

// The file that a chain of symbolic links at `path` names, whether it exists or not.
std::filesystem::path link_target(std::filesystem::path path) {
  for (int links = 0; links < kMaxLinks; ++links) {
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (error) break;
    path = path.parent_path() / target;  // an absolute target stands for itself
  }
  return path;
}

}  // namespace

Status check_output(const std::filesystem::path& path, std::string_view flag, Output how) {
  const auto refuse = [&](int error) {
    return fail(ErrorCode::kOutput, "{} {}: {}", flag, path.string(), std::strerror(error));
  };
  const auto found = status_of(path);
  // Absent is fine; a loop of links, a name too long or a folder that cannot be entered is not.
  if (!found && errno != ENOENT) return refuse(errno);
  if (path.filename().empty()) return refuse(path.empty() ? ENOENT : EISDIR);
  if (found && S_ISDIR(found->st_mode)) return refuse(EISDIR);
  if (found && ::access(path.c_str(), W_OK) != 0) return refuse(errno);
  if (found && how == Output::kInPlace) return {};
  if (found && (!S_ISREG(found->st_mode) || is_terminal_stream(*found))) return {};
  const std::filesystem::path folder = link_target(path).parent_path();
  // With its last slash a file in the folder's place is refused as what it is.
  const std::filesystem::path entry = folder.empty() ? "." : folder / "";
  if (::access(entry.c_str(), W_OK | X_OK) != 0) return refuse(errno);
  return {};
}

Status write_output(const std::filesystem::path& path, std::string_view content) {
  const auto found = status_of(path);
  if (!found || (S_ISREG(found->st_mode) && !is_terminal_stream(*found))) {
    return write_file_atomically(link_target(path), content);
  }
  K3_ASSIGN(const UniqueFd fd, open_output(path));
  return write_all(fd.get(), std::as_bytes(std::span(content)), path);
}

Result<UniqueFd> open_output(const std::filesystem::path& path) {
  const auto found = status_of(path);
  const int how = found && is_terminal_stream(*found) ? O_APPEND : O_TRUNC;
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | how, 0644));
  if (!fd.valid()) return cannot_write(path, errno);
  return fd;
}

Status write_all(int fd, std::span<const std::byte> data, const std::filesystem::path& path) {
  while (!data.empty()) {
    const ssize_t put = ::write(fd, data.data(), std::min(data.size(), kMaxTransferBytes));
    if (put >= 0) {
      data = data.subspan(static_cast<std::size_t>(put));
    } else if (errno == EAGAIN) {
      pollfd writable{fd, POLLOUT, 0};
      if (::poll(&writable, 1, kReaderLimitMs) == 0) return cannot_write(path, ETIMEDOUT);
    } else if (errno != EINTR) {
      return cannot_write(path, errno);
    }
  }
  return {};
}

}  // namespace k3::cli
