// Whole-file and positional reads and writes that loop over short transfers and EINTR.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace k3 {

// The largest transfer ever asked of the system at once (it truncates at 2 GiB).
inline constexpr std::size_t kMaxTransferBytes = std::size_t{1} << 30;

// Opens the regular file `path` for reading (O_CLOEXEC); never blocks, whatever lies there. Errors
// have `code` and name the path and errno, or what it is instead of a regular file; a shortage of
// descriptors or memory, which may pass, is kFailed whatever `code` is.
Result<UniqueFd> open_for_reading(const std::filesystem::path& path,
                                  ErrorCode code = ErrorCode::kFailed);

// Size of an open file in bytes.
Result<std::uint64_t> file_bytes(int fd, const std::filesystem::path& path);

// Fills `out` from `offset`; end of file before `out` is full is an error (kWeights) naming path,
// offset, bytes wanted and bytes found.
Status read_exactly(int fd, std::uint64_t offset, std::span<std::byte> out,
                    const std::filesystem::path& path);

// Writes all of `data` at `offset`. Errors: kOutput naming path and errno.
Status write_exactly(int fd, std::uint64_t offset, std::span<const std::byte> data,
                     const std::filesystem::path& path);

// The whole file; refused (kFailed) when larger than `limit_bytes`.
Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t limit_bytes);

// Replaces `path` atomically: writes a temporary file beside it, syncs, renames. On error (kOutput)
// an existing file is untouched.
Status write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace k3
