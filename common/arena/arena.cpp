#include "common/arena/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace k3 {
namespace {

std::string errno_text() { return std::strerror(errno); }

Result<std::uint64_t> random_generation() {
  std::uint64_t value = 0;
  while (value == 0) {
    if (::getrandom(&value, sizeof(value), 0) != sizeof(value) && errno != EINTR) {
      return fail(ErrorCode::kFailed, "getrandom: {}", errno_text());
    }
  }
  return value;
}

Status check_cannot_shrink(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return fail(ErrorCode::kFailed, "shared region: F_GET_SEALS: {}", errno_text());
  if ((seals & F_SEAL_SHRINK) != 0) return {};
  return fail(ErrorCode::kFailed,
              "shared region: memory with seals {:#x}, expected one against shrinking ({:#x})",
              seals, F_SEAL_SHRINK);
}

Status check_is_read_only_file(int fd, const struct stat& info) {
  if (!S_ISREG(info.st_mode)) {
    return fail(ErrorCode::kFailed, "shared region: mode {:o}, expected a regular file",
                info.st_mode);
  }
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY) return {};
  return fail(ErrorCode::kFailed, "shared region: a file open with flags {:#x}, expected read-only",
              flags);
}

void unmap(const void* data, std::size_t bytes) {
  if (data != nullptr) ::munmap(const_cast<void*>(data), bytes);
}

}  // namespace

Result<Arena> Arena::create(const std::string& name, std::size_t bytes) {
  if (bytes == 0 || bytes > static_cast<std::size_t>(std::numeric_limits<off_t>::max())) {
    return fail(ErrorCode::kFailed, "arena \"{}\": {} bytes is not a possible size", name, bytes);
  }
  Arena arena;
  K3_ASSIGN(arena.generation_, random_generation());
  arena.fd_ = UniqueFd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!arena.fd_.valid()) {
    return fail(ErrorCode::kFailed, "arena \"{}\": memfd_create: {}", name, errno_text());
  }
  if (::ftruncate(arena.fd(), static_cast<off_t>(bytes)) != 0) {
    return fail(ErrorCode::kFailed, "arena \"{}\": growing to {} bytes: {}", name, bytes,
                errno_text());
  }
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, arena.fd(), 0);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::kFailed, "arena \"{}\": mapping {} bytes: {}", name, bytes,
                errno_text());
  }
  arena.data_ = {static_cast<std::byte*>(data), bytes};
  // An abort must end the process at once, not after gigabytes of weights were written to a core
  // file: until then consumers see no end of file. Best effort.
  ::madvise(data, bytes, MADV_DONTDUMP);
  // Only after the mapping above: F_SEAL_FUTURE_WRITE leaves it writable and refuses every later
  // one.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (::fcntl(arena.fd(), F_ADD_SEALS, kSeals) != 0) {
    return fail(ErrorCode::kFailed, "arena \"{}\": sealing {} bytes: {}", name, bytes,
                errno_text());
  }
  return arena;
}

Arena::Arena(Arena&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, {})),
      generation_(std::exchange(other.generation_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this != &other) {
    unmap(data_.data(), data_.size());
    fd_ = std::move(other.fd_);
    data_ = std::exchange(other.data_, {});
    generation_ = std::exchange(other.generation_, 0);
  }
  return *this;
}

Arena::~Arena() { unmap(data_.data(), data_.size()); }

Result<MappedRegion> MappedRegion::map(UniqueFd fd, std::size_t bytes, RegionKind kind) {
  // First: the size below must be one that lasts.
  if (kind == RegionKind::kMemory) K3_TRY(check_cannot_shrink(fd.get()));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    return fail(ErrorCode::kFailed, "shared region: fstat: {}", errno_text());
  }
  if (kind == RegionKind::kFile) K3_TRY(check_is_read_only_file(fd.get(), info));
  if (bytes == 0 || bytes > static_cast<std::uint64_t>(info.st_size)) {
    return fail(ErrorCode::kFailed, "shared region: {} bytes announced, the descriptor holds {}",
                bytes, info.st_size);
  }
  void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::kFailed, "shared region: mapping {} bytes: {}", bytes, errno_text());
  }
  ::madvise(data, bytes, MADV_DONTDUMP);  // as for the owner
  MappedRegion region;
  region.data_ = {static_cast<const std::byte*>(data), bytes};
  return region;
}

MappedRegion::MappedRegion(MappedRegion&& other) noexcept : data_(std::exchange(other.data_, {})) {}

MappedRegion& MappedRegion::operator=(MappedRegion&& other) noexcept {
  if (this != &other) {
    unmap(data_.data(), data_.size());
    data_ = std::exchange(other.data_, {});
  }
  return *this;
}

MappedRegion::~MappedRegion() { unmap(data_.data(), data_.size()); }

}  // namespace k3
