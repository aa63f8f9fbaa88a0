#include "common/checkpoint/embedding_checksums.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/checkpoint/trunk_order.h"

namespace k3 {
namespace {

constexpr std::uint64_t kReadBytes = std::uint64_t{16} << 20;

}  // namespace

Result<std::vector<std::uint64_t>> embedding_checksums(
    const Checkpoint& checkpoint, const std::function<void(std::uint64_t)>& progress) {
  const TensorPlace* const place = checkpoint.find(kEmbeddingName);
  if (place == nullptr) return fail(ErrorCode::kWeights, "{}: not found", kEmbeddingName);
  const std::uint64_t rows = place->shape.front();
  const std::uint64_t row_bytes = place->bytes / rows;
  const std::uint64_t rows_at_once = std::max<std::uint64_t>(kReadBytes / row_bytes, 1);
  const std::filesystem::path& path = checkpoint.shards().at(place->shard).path;
  K3_ASSIGN(const UniqueFd fd, open_for_reading(path, ErrorCode::kWeights));
  std::vector<std::byte> buffer(rows_at_once * row_bytes);
  std::vector<std::uint64_t> checksums;
  while (checksums.size() < rows) {
    const std::uint64_t count = std::min<std::uint64_t>(rows_at_once, rows - checksums.size());
    const auto piece = std::span(buffer).first(count * row_bytes);
    K3_TRY(read_exactly(fd.get(), place->offset + checksums.size() * row_bytes, piece, path));
    for (std::uint64_t r = 0; r < count; ++r) {
      checksums.push_back(checksum(piece.subspan(r * row_bytes, row_bytes)));
    }
    progress(checksums.size() * row_bytes);
  }
  return checksums;
}

}  // namespace k3
