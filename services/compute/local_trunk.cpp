#include "services/compute/local_trunk.h"

#include <algorithm>

#include "common/base/check.h"

namespace k3::compute {

namespace {

// Jobs of embedding rows, above those of units, whose ids are their numbers.
constexpr std::uint64_t kFirstRowJob = std::uint64_t{1} << 32;

}  // namespace

Result<std::unique_ptr<LocalTrunk>> LocalTrunk::open(const Checkpoint& checkpoint,
                                                     UnitTable table) {
  const TensorPlace* embedding = checkpoint.find(kEmbeddingName);
  if (embedding == nullptr) return fail(ErrorCode::kWeights, "{}: not found", kEmbeddingName);
  // The embedding's shard comes after the files of the units.
  std::vector<std::filesystem::path> files = table.files;
  files.push_back(checkpoint.shards().at(embedding->shard).path);
  K3_ASSIGN(LocalReads reads, LocalReads::open(files));
  return std::unique_ptr<LocalTrunk>(
      new LocalTrunk(checkpoint, std::move(table), std::move(reads), *embedding));
}

LocalTrunk::LocalTrunk(const Checkpoint& checkpoint, UnitTable table, LocalReads reads,
                       TensorPlace embedding)
    : order_(trunk_order(checkpoint.config())),
      table_(std::move(table)),
      vocab_(static_cast<std::uint64_t>(checkpoint.config().vocab)),
      embedding_(std::move(embedding)),
      reads_(std::move(reads)) {
  for (Buffer& buffer : buffers_) buffer.resize(table_.largest_unit_bytes());
}

LocalTrunk::~LocalTrunk() = default;

Status LocalTrunk::begin_pass(bool with_head, bool) {
  K3_CHECK(unit_ == end_, "the previous pass is not at its end");
  unit_ = block_ = requested_ = arrived_ = 0;
  end_ = with_head ? table_.units.size() : table_.head_unit;
  return {};
}

void LocalTrunk::read_unit(std::size_t unit) {
  const Unit& entry = table_.units[unit];
  const std::span<std::byte> into = buffer(unit);
  ReadJob job{
      .id = unit,
      .label = fmt::format("unit {} ({} ..)", unit, order_.at(entry.blocks.front().tensor).name),
      .checksum = entry.checksum};
  for (const UnitExtent& extent : entry.extents) {
    job.extents.push_back(
        {extent.file, extent.offset, into.subspan(extent.unit_offset, extent.length)});
  }
  reads_.submit(std::move(job));
}

Result<TrunkBlock> LocalTrunk::block() {
  if (unit_ == end_) return fail(ErrorCode::kWeights, "the trunk's units end at unit {}", end_);
  while (requested_ < std::min(unit_ + buffers_.size(), end_)) read_unit(requested_++);
  if (arrived_ == unit_) {
    ++arrived_;
    K3_TRY(reads_.wait(unit_));
  }
  const Unit& unit = table_.units[unit_];
  const UnitBlock& block = unit.blocks[block_];
  const std::span<const std::byte> bytes = buffer(unit_);
  return TrunkBlock{.tensor = block.tensor,
                    .first_row = block.first_row,
                    .rows = block.rows,
                    .encoding = static_cast<std::uint8_t>(block.encoding),
                    .bytes = bytes.subspan(block.offset, block.length),
                    .ends_unit = block_ + 1 == unit.blocks.size()};
}

void LocalTrunk::done() {
  K3_CHECK(unit_ < end_, "no block in use");
  if (++block_ < table_.units[unit_].blocks.size()) return;
  block_ = 0;
  ++unit_;
}

void LocalTrunk::abandon() {
  // Nobody needs what is under way, but its buffers are free only when it has ended.
  for (; arrived_ < requested_; ++arrived_) (void)reads_.wait(arrived_);
  unit_ = end_;
}

Result<EmbeddingRows> LocalTrunk::embedding(std::span<const std::int32_t> ids) {
  const std::uint64_t row_bytes = embedding_.bytes / vocab_;
  const auto encoding =
      embedding_.dtype == DType::kF32 ? TrunkEncoding::kRawF32 : TrunkEncoding::kRawBf16;
  EmbeddingRows rows{.encoding = static_cast<std::uint8_t>(encoding),
                     .row_bytes = static_cast<std::uint32_t>(row_bytes),
                     .data = std::vector<std::byte>(ids.size() * row_bytes)};
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::uint64_t>(id) >= vocab_) {
      return fail(ErrorCode::kUsage, "token id {}: the vocabulary has 0..{}", id, vocab_ - 1);
    }
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::uint64_t>(ids[i]);
    ReadJob job{.id = kFirstRowJob + i, .label = fmt::format("embedding row of token {}", id)};
    job.extents = {{static_cast<std::uint32_t>(table_.files.size()),
                    embedding_.offset + id * row_bytes,
                    std::span(rows.data).subspan(i * row_bytes, row_bytes)}};
    if (!table_.embedding_checksums.empty()) job.checksum = table_.embedding_checksums.at(id);
    reads_.submit(std::move(job));
  }
  Status status;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Status read = reads_.wait(kFirstRowJob + i);
    if (status) status = std::move(read);
  }
  K3_TRY(status);
  return rows;
}

}  // namespace k3::compute
