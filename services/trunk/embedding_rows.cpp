#include "services/trunk/embedding_rows.h"

#include <fmt/format.h>

#include <utility>

#include "common/base/check.h"

namespace k3::trunk {

Result<EmbeddingRows> EmbeddingRows::create(const TensorPlace& table, std::uint32_t file,
                                            std::vector<std::uint64_t> checksums) {
  if (table.dtype != DType::kF32 && table.dtype != DType::kBf16) {
    return fail(ErrorCode::kWeights, "{}: stored as {}, expected F32 or BF16", kEmbeddingName,
                name_of(table.dtype));
  }
  if (table.shape.size() != 2 || table.shape[0] == 0) {
    return fail(ErrorCode::kWeights, "{}: {} dimensions, expected [vocab, hidden]", kEmbeddingName,
                table.shape.size());
  }
  if (!checksums.empty() && checksums.size() != table.shape[0]) {
    return fail(ErrorCode::kWeights, "{}: {} rows, {} checksums of rows", kEmbeddingName,
                table.shape[0], checksums.size());
  }
  EmbeddingRows rows;
  rows.checksums_ = std::move(checksums);
  rows.file_ = file;
  rows.table_offset_ = table.offset;
  rows.vocab_ = table.shape[0];
  rows.row_bytes_ = static_cast<std::uint32_t>(table.bytes / table.shape[0]);
  rows.encoding_ = table.dtype == DType::kF32 ? TrunkEncoding::kRawF32 : TrunkEncoding::kRawBf16;
  return rows;
}

Result<std::vector<ReadJob>> EmbeddingRows::begin(ClientId client, std::uint64_t sequence,
                                                  std::span<const std::int32_t> ids) {
  if (ids.empty() || ids.size() > kMaxIds) {
    return fail(ErrorCode::kUsage, "embedding rows: {} ids asked for, expected 1 to {}", ids.size(),
                kMaxIds);
  }
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::uint64_t>(id) >= vocab_) {
      return fail(ErrorCode::kUsage, "embedding rows: token id {}, the vocabulary has 0..{}", id,
                  vocab_ - 1);
    }
  }
  if (requests_.size() >= kMaxOpenRequests) {
    return fail(ErrorCode::kUsage, "embedding rows: {} requests are open already, the most allowed",
                kMaxOpenRequests);
  }
  const std::uint64_t number = next_request_++;
  Request& request = requests_[number];
  request.client = client;
  request.sequence = sequence;
  request.reads_left = ids.size();
  request.data.resize(ids.size() * row_bytes_);
  std::vector<ReadJob> jobs(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::uint64_t>(ids[i]);
    jobs[i].id = kFirstJobId + number * kMaxIds + i;
    jobs[i].label = fmt::format("embedding row of token {}", id);
    jobs[i].extents = {{file_, table_offset_ + id * row_bytes_,
                        std::span(request.data).subspan(i * row_bytes_, row_bytes_)}};
    if (!checksums_.empty()) jobs[i].checksum = checksums_[id];
    jobs[i].urgent = true;
  }
  return jobs;
}

std::optional<EmbeddingRows::Answer> EmbeddingRows::read_done(const ReadDone& done) {
  const std::uint64_t job = done.id - kFirstJobId;
  const auto found = requests_.find(job / kMaxIds);
  K3_CHECK(found != requests_.end(), fmt::format("no request for read {}", done.id));
  Request& request = found->second;
  const std::size_t index = job % kMaxIds;
  if (!done.status && (!request.failure || index < request.failure->first)) {
    request.failure = {index, done.status.error()};
  }
  if (--request.reads_left > 0) return std::nullopt;
  Answer answer{request.client, request.sequence, {}};
  if (request.failure) {
    answer.body = ipc::ErrorReply{std::move(request.failure->second)};
  } else {
    answer.body =
        ipc::Rows{static_cast<std::uint8_t>(encoding_), row_bytes_, std::move(request.data)};
  }
  requests_.erase(found);
  return answer;
}

}  // namespace k3::trunk
