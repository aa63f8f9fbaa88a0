#include "tools/k3/run_logits.h"

#include <bit>
#include <cerrno>
#include <cstring>

namespace k3::cli {

static_assert(std::endian::native == std::endian::little, "rows are written as they lie in memory");

LogitsFile::LogitsFile(const std::filesystem::path& path, std::uint32_t first_position,
                       std::uint32_t vocab)
    : path_(path),
      out_(path, std::ios::binary | std::ios::trunc),
      next_position_(first_position),
      vocab_(vocab) {
  if (!out_) {
    status_ = fail(ErrorCode::kOutput, "{}: {}", path_.string(), std::strerror(errno));
  }
}

void LogitsFile::add(std::uint32_t position, std::span<const float> row) {
  if (!status_ || position < next_position_) return;
  if (position != next_position_) {
    status_ = fail(ErrorCode::kFailed, "logits of position {} arrived, expected position {}",
                   position, next_position_);
    return;
  }
  if (row.size() != vocab_) {
    status_ = fail(ErrorCode::kFailed, "logits of position {} have {} values, expected {}",
                   position, row.size(), vocab_);
    return;
  }
  ++next_position_;
  const auto bytes = std::as_bytes(row);
  out_.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (!out_) status_ = fail(ErrorCode::kOutput, "{}: {}", path_.string(), std::strerror(errno));
}

Status LogitsFile::finish() {
  out_.close();
  if (status_ && !out_) {
    status_ = fail(ErrorCode::kOutput, "{}: {}", path_.string(), std::strerror(errno));
  }
  return status_;
}

}  // namespace k3::cli
