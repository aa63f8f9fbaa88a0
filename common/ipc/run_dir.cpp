#include "common/ipc/run_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace k3::ipc {
namespace {

constexpr std::size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;

std::string errno_text() { return std::strerror(errno); }

std::string holder_of(int fd) {
  std::array<char, 32> text{};
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  const std::string_view pid(text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return pid.empty() ? "of unknown id" : std::string(pid.substr(0, pid.find('\n')));
}

// Whether `path` still names the file open as `fd`: its last holder may have removed it between our
// open and our lock.
bool is_current(int fd, const std::filesystem::path& path) {
  struct stat ours {};
  struct stat named {};
  return ::fstat(fd, &ours) == 0 && ::stat(path.c_str(), &named) == 0 &&
         ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

}  // namespace

Result<Endpoint> endpoint_in(const std::filesystem::path& run_dir, std::string_view service) {
  if (service.empty() || service.find('/') != std::string_view::npos) {
    return fail(ErrorCode::kUsage, "\"{}\" is not a service name", service);
  }
  const std::string base = (run_dir / service).string();
  Endpoint endpoint{base + ".zmq", base + ".life", base + ".lock"};
  const std::size_t length = endpoint.lifeline_path.string().size();
  if (length > kMaxSocketPath) {
    return fail(ErrorCode::kUsage, "run directory: socket path {} has {} bytes, the limit is {}",
                endpoint.lifeline_path.string(), length, kMaxSocketPath);
  }
  return endpoint;
}

Status prepare_run_dir(const std::filesystem::path& run_dir) {
  if (::mkdir(run_dir.c_str(), 0700) == 0) return {};
  if (errno != EEXIST) {
    return fail(ErrorCode::kFailed, "run directory {}: {}", run_dir.string(), errno_text());
  }
  struct stat info {};
  if (::stat(run_dir.c_str(), &info) != 0) {
    return fail(ErrorCode::kFailed, "run directory {}: {}", run_dir.string(), errno_text());
  }
  if (!S_ISDIR(info.st_mode)) {
    return fail(ErrorCode::kUsage, "run directory {}: not a directory", run_dir.string());
  }
  if (info.st_uid != ::geteuid()) {
    return fail(ErrorCode::kUsage, "run directory {}: belongs to user {}, expected {}",
                run_dir.string(), info.st_uid, ::geteuid());
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fail(ErrorCode::kUsage, "run directory {}: mode {:04o} lets others write, expected 0700",
                run_dir.string(), info.st_mode & 07777);
  }
  return {};
}

Result<UniqueFd> lock_endpoint(const Endpoint& endpoint) {
  const std::string path = endpoint.lock_path.string();
  while (true) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid()) return fail(ErrorCode::kFailed, "{}: {}", path, errno_text());
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) return fail(ErrorCode::kFailed, "{}: {}", path, errno_text());
      return fail(ErrorCode::kFailed, "{}: in use by process {}", path, holder_of(fd.get()));
    }
    if (!is_current(fd.get(), endpoint.lock_path)) continue;
    const std::string pid = fmt::format("{}\n", ::getpid());
    if (::ftruncate(fd.get(), 0) != 0 ||
        ::pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
      return fail(ErrorCode::kFailed, "{}: writing the process id: {}", path, errno_text());
    }
    return fd;
  }
}

bool holds_endpoint(const UniqueFd& lock, const Endpoint& endpoint) {
  return lock.valid() && is_current(lock.get(), endpoint.lock_path);
}

}  // namespace k3::ipc
