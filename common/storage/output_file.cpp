// Reservation, locking and the rename of large output files; see output_file.h.
#include "common/storage/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "common/base/file.h"

namespace k3 {
namespace {

std::string errno_text() { return std::strerror(errno); }

// Looks at the free space first: a reservation that must fail would take the whole disk from
// everybody else until it does. File systems without fallocate get the look alone.
Status reserve(int fd, std::uint64_t bytes, const std::filesystem::path& path) {
  if (bytes == 0) return {};
  std::error_code unknown;
  const std::uint64_t free_bytes = std::filesystem::space(path.parent_path(), unknown).available;
  const bool too_large = !unknown && free_bytes < bytes;
  if (!too_large && ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0) return {};
  const int error = too_large ? ENOSPC : errno;
  if (error == EOPNOTSUPP) return {};
  if (error == ENOSPC) {
    return fail(ErrorCode::kOutput, "{}: needs {} bytes, the disk has {} free", path.string(),
                bytes, free_bytes);
  }
  return fail(ErrorCode::kOutput, "{}: reserving {} bytes: {}", path.string(), bytes,
              std::strerror(error));
}

constexpr std::uint64_t kHoleBytes = 64 << 10;

bool is_zero(std::span<const std::byte> data) {
  return data[0] == std::byte{0} && std::memcmp(data.data(), data.data() + 1, data.size() - 1) == 0;
}

Status sync_directory(const std::filesystem::path& directory) {
  const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || ::fsync(fd.get()) != 0) {
    return fail(ErrorCode::kOutput, "{}: fsync: {}", directory.string(), errno_text());
  }
  return {};
}

}  // namespace

Result<OutputFile> OutputFile::create(const std::filesystem::path& path, std::uint64_t bytes,
                                      Space space) {
  std::filesystem::path partial = std::filesystem::absolute(path);
  partial += ".partial";
  UniqueFd fd(::open(partial.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) {
    return fail(ErrorCode::kOutput, "{}: cannot be created: {}", partial.string(), errno_text());
  }
  // A killed writer leaves the file but not the lock: the next one takes it over.
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(ErrorCode::kOutput, "{}: another process is writing it", partial.string());
  }
  OutputFile file;
  file.path_ = std::filesystem::absolute(path);
  file.partial_ = std::move(partial);
  file.fd_ = std::move(fd);
  file.space_ = space;
  if (::ftruncate(file.fd_.get(), 0) != 0 ||
      ::ftruncate(file.fd_.get(), static_cast<off_t>(bytes)) != 0) {
    return fail(ErrorCode::kOutput, "{}: setting the size to {} bytes: {}", file.partial_.string(),
                bytes, errno_text());
  }
  if (space == Space::kReserved) K3_TRY(reserve(file.fd_.get(), bytes, file.partial_));
  return file;
}

OutputFile::~OutputFile() {
  if (fd_.valid()) ::unlink(partial_.c_str());
}

Status OutputFile::write(std::uint64_t offset, std::span<const std::byte> data) {
  if (space_ == Space::kReserved) return write_exactly(fd_.get(), offset, data, partial_);
  while (!data.empty()) {
    const std::size_t length = std::min<std::size_t>(data.size(), kHoleBytes - offset % kHoleBytes);
    const std::span<const std::byte> piece = data.first(length);
    if (!is_zero(piece)) K3_TRY(write_exactly(fd_.get(), offset, piece, partial_));
    data = data.subspan(length);
    offset += length;
  }
  return {};
}

Status OutputFile::cut(std::uint64_t bytes) {
  if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0) return {};
  return fail(ErrorCode::kOutput, "{}: cutting it to {} bytes: {}", partial_.string(), bytes,
              errno_text());
}

Status OutputFile::commit() {
  if (::fsync(fd_.get()) != 0) {
    return fail(ErrorCode::kOutput, "{}: fsync: {}", partial_.string(), errno_text());
  }
  if (::rename(partial_.c_str(), path_.c_str()) != 0) {
    return fail(ErrorCode::kOutput, "{}: rename: {}", path_.string(), errno_text());
  }
  fd_.reset();
  return sync_directory(path_.parent_path());
}

}  // namespace k3
