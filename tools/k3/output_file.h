// The files a run writes: --json and --dump-logits.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace k3::cli {

// What becomes of a file that is there: write_output() replaces it, open_output() writes in place.
enum class Output { kReplaced, kInPlace };

// Asked before a run that may take hours: whether `path` can be written when it ends, as far as can
// be told without touching it. It must be no directory, and writable if it is there; its folder
// must exist and, unless a file that is there is written in place, be writable. kOutput naming
// `flag`, the path and the reason.
Status check_output(const std::filesystem::path& path, std::string_view flag, Output how);

// Replaces `path` by `content`, a file atomically; a symbolic link stays and its target is
// replaced. A device, a pipe, or the file that is stdout or stderr already is written to. Errors:
// kOutput naming the path.
Status write_output(const std::filesystem::path& path, std::string_view content);

// Opens `path` for writing from its beginning, creating a file that is not there; stdout and stderr
// go on where they are. A pipe that nobody reads is kOutput, never a wait.
Result<UniqueFd> open_output(const std::filesystem::path& path);

// Writes all of `data`. kOutput naming `path`, also when it is a pipe whose reader takes nothing
// for 30 s: stop signals do not end the wait for it.
Status write_all(int fd, std::span<const std::byte> data, const std::filesystem::path& path);

}  // namespace k3::cli
