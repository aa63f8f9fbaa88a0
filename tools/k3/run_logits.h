// The file of --dump-logits: float32 rows of [vocab], little-endian, one per position, in order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace k3::cli {

// A restarted or recomputing worker sends rows again; each position is written once. A failure to
// write is kept for finish(), so that the generation goes on. One thread.
class LogitsFile {
 public:
  // Opens `path` (see open_output); its first row will be that of `first_position`, each of `vocab`
  // values.
  LogitsFile(const std::filesystem::path& path, std::uint32_t first_position, std::uint32_t vocab);

  void add(std::uint32_t position, std::span<const float> row);

  // Completes the file. kOutput naming it when it could not be written; kFailed when a position was
  // missing or a row had another width.
  Status finish();

 private:
  std::filesystem::path path_;
  UniqueFd out_;
  std::uint32_t next_position_;
  std::uint32_t vocab_;
  Status status_;
};

}  // namespace k3::cli
