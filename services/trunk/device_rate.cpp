#include "services/trunk/device_rate.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/unique_fd.h"

namespace k3::trunk {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{8} << 20;
constexpr std::uint64_t kAlignment = 4096;  // of offsets, lengths and buffers under O_DIRECT

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

struct Piece {
  int fd = -1;
  const FileSpan* span = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

struct Open {
  UniqueFd fd;
  bool direct = false;
};

Result<Open> open_direct(const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  if (fd.valid()) return Open{std::move(fd), true};
  if (errno != EINVAL)
    return fail(ErrorCode::kWeights, "{}: {}", path.string(), std::strerror(errno));
  K3_ASSIGN(UniqueFd buffered, open_for_reading(path, ErrorCode::kWeights));
  return Open{std::move(buffered), false};
}

// The end of the file may cut a piece short.
Result<std::uint64_t> read_piece(const Piece& piece, void* buffer) {
  const ssize_t got = ::pread(piece.fd, buffer, piece.length, static_cast<off_t>(piece.offset));
  if (got > 0) return static_cast<std::uint64_t>(got);
  return fail(ErrorCode::kWeights, "{}: {} bytes at {}: {}", piece.span->path.string(),
              piece.length, piece.offset, got == 0 ? "end of file" : std::strerror(errno));
}

void cut(const FileSpan& span, int fd, std::vector<Piece>& pieces) {
  const std::uint64_t end = (span.offset + span.length + kAlignment - 1) / kAlignment * kAlignment;
  for (std::uint64_t at = span.offset / kAlignment * kAlignment; at < end; at += kPieceBytes) {
    pieces.push_back({fd, &span, at, std::min(kPieceBytes, end - at)});
  }
}

}  // namespace

Result<DeviceRate> measure_device(const std::vector<FileSpan>& spans, std::size_t threads) {
  DeviceRate rate;
  rate.direct = true;
  std::map<std::filesystem::path, UniqueFd> files;
  std::vector<Piece> pieces;
  for (const FileSpan& span : spans) {
    UniqueFd& fd = files[span.path];
    if (!fd.valid()) {
      K3_ASSIGN(Open file, open_direct(span.path));
      rate.direct = rate.direct && file.direct;
      fd = std::move(file.fd);
    }
    cut(span, fd.get(), pieces);
  }
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;  // guards rate.bytes and failure
  Status failure;
  const auto read_pieces = [&] {
    const std::unique_ptr<void, Free> buffer(std::aligned_alloc(kAlignment, kPieceBytes));
    K3_CHECK(buffer, "no memory for a piece of a file");
    for (std::size_t i = next++; i < pieces.size(); i = next++) {
      const Result<std::uint64_t> got = read_piece(pieces[i], buffer.get());
      const std::scoped_lock lock(mutex);
      if (got) {
        rate.bytes += *got;
      } else {
        failure = fail(got.error().code, "{}", got.error().message);
      }
    }
  };
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> readers;
  for (std::size_t i = 0; i < threads; ++i) readers.emplace_back(read_pieces);
  for (std::thread& reader : readers) reader.join();
  rate.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  K3_TRY(failure);
  return rate;
}

Result<std::uint64_t> drop_from_page_cache(const std::filesystem::path& path) {
  K3_ASSIGN(const UniqueFd fd, open_for_reading(path, ErrorCode::kWeights));
  K3_ASSIGN(const std::uint64_t bytes, file_bytes(fd.get(), path));
  ::fdatasync(fd.get());  // a page that is not written yet would stay
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (bytes == 0) return 0;
  void* mapping = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (mapping == MAP_FAILED) {
    return fail(ErrorCode::kWeights, "{}: mmap: {}", path.string(), std::strerror(errno));
  }
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> present((bytes + page - 1) / page);
  const bool known = ::mincore(mapping, bytes, present.data()) == 0;
  ::munmap(mapping, bytes);
  if (!known)
    return fail(ErrorCode::kWeights, "{}: mincore: {}", path.string(), std::strerror(errno));
  const auto stayed = std::ranges::count_if(present, [](auto it) { return (it & 1) != 0; });
  return static_cast<std::uint64_t>(stayed) * page;
}

}  // namespace k3::trunk
