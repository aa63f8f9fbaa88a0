#include "tools/k3/run_logits.h"

#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tools/k3/output_file.h"

namespace k3::cli {

static_assert(std::endian::native == std::endian::little, "rows are written as they lie in memory");

LogitsFile::LogitsFile(const std::filesystem::path& path, std::uint32_t first_position,
                       std::uint32_t vocab)
    : path_(path), next_position_(first_position), vocab_(vocab) {
  Result<UniqueFd> out = open_output(path_);
  if (out) {
    out_ = std::move(*out);
  } else {
    status_ = tl::unexpected<Error>(out.error());
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
  status_ = write_all(out_.get(), std::as_bytes(row), path_);
}

Status LogitsFile::finish() {
  // Some file systems report a full disk only here.
  if (out_.valid() && ::close(out_.release()) != 0 && status_) {
    status_ = fail(ErrorCode::kOutput, "{}: {}", path_.string(), std::strerror(errno));
  }
  return status_;
}

}  // namespace k3::cli
