#include "common/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace k3 {
namespace {

std::string errno_text() { return std::strerror(errno); }

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  return "a device or socket";
}

// Says that the process or the system has run out of something, not what is wrong with the file.
bool is_shortage(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

}  // namespace

Result<UniqueFd> open_for_reading(const std::filesystem::path& path, ErrorCode code) {
  // Without O_NONBLOCK the open of a pipe waits for its writer.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) {
    const int error = errno;
    return fail(is_shortage(error) ? ErrorCode::kFailed : code, "{}: {}", path.string(),
                std::strerror(error));
  }
  if (!S_ISREG(info.st_mode)) {
    return fail(code, "{}: is {}, expected a regular file", path.string(), kind_of(info.st_mode));
  }
  // io_uring would take the flag as a wish for EAGAIN instead of waiting for the disk.
  if (::fcntl(fd.get(), F_SETFL, O_RDONLY) != 0) {
    return fail(code, "{}: fcntl: {}", path.string(), errno_text());
  }
  return fd;
}

Result<std::uint64_t> file_bytes(int fd, const std::filesystem::path& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    return fail(ErrorCode::kFailed, "{}: fstat: {}", path.string(), errno_text());
  }
  return static_cast<std::uint64_t>(info.st_size);
}

Status read_exactly(int fd, std::uint64_t offset, std::span<std::byte> out,
                    const std::filesystem::path& path) {
  std::size_t done = 0;
  while (done < out.size()) {
    const std::size_t want = std::min(out.size() - done, kMaxTransferBytes);
    const ssize_t got = ::pread(fd, out.data() + done, want, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return fail(ErrorCode::kWeights, "{}: reading {} bytes at {}: {}", path.string(), out.size(),
                  offset, errno_text());
    }
    if (got == 0) {
      return fail(ErrorCode::kWeights, "{}: wanted {} bytes at {}, the file ends after {}",
                  path.string(), out.size(), offset, done);
    }
    done += static_cast<std::size_t>(got);
  }
  return {};
}

Status write_exactly(int fd, std::uint64_t offset, std::span<const std::byte> data,
                     const std::filesystem::path& path) {
  std::size_t done = 0;
  while (done < data.size()) {
    const std::size_t want = std::min(data.size() - done, kMaxTransferBytes);
    const ssize_t put = ::pwrite(fd, data.data() + done, want, static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      return fail(ErrorCode::kOutput, "{}: writing {} bytes at {}: {}", path.string(), data.size(),
                  offset, errno_text());
    }
    done += static_cast<std::size_t>(put);
  }
  return {};
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t limit_bytes) {
  K3_ASSIGN(const UniqueFd fd, open_for_reading(path));
  K3_ASSIGN(const std::uint64_t bytes, file_bytes(fd.get(), path));
  if (bytes > limit_bytes) {
    return fail(ErrorCode::kFailed, "{}: {} bytes, the limit is {}", path.string(), bytes,
                limit_bytes);
  }
  std::string text(bytes, '\0');
  K3_TRY(read_exactly(fd.get(), 0, std::as_writable_bytes(std::span(text)), path));
  return text;
}

Status write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  const std::filesystem::path temporary = path.string() + fmt::format(".tmp.{}", ::getpid());
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) {
    return fail(ErrorCode::kOutput, "{}: cannot be created: {}", temporary.string(), errno_text());
  }
  Status status = write_exactly(fd.get(), 0, std::as_bytes(std::span(content)), temporary);
  if (status && ::fsync(fd.get()) != 0) {
    status = fail(ErrorCode::kOutput, "{}: fsync: {}", temporary.string(), errno_text());
  }
  if (status && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = fail(ErrorCode::kOutput, "{}: rename: {}", path.string(), errno_text());
  }
  if (!status) ::unlink(temporary.c_str());
  return status;
}

}  // namespace k3
