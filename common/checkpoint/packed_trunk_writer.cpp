// Writing trunk.k3t; the file format is in docs/formats.md.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/base/file.h"
#include "common/checkpoint/embedding_checksums.h"
#include "common/checkpoint/packed_trunk.h"
#include "common/checkpoint/packed_trunk_format.h"
#include "common/codec/coded_bf16.h"
#include "common/storage/output_file.h"
#include "common/storage/streaming_checksum.h"

namespace k3 {
namespace {

using packed::FileBlock;
using packed::FileHeader;
using packed::FileUnit;

std::uint64_t round_up(std::uint64_t offset, std::uint64_t step) {
  return (offset + step - 1) / step * step;
}

std::size_t count_blocks(const UnitTable& table) {
  std::size_t blocks = 0;
  for (const Unit& unit : table.units) blocks += unit.blocks.size();
  return blocks;
}

// Reads units from the shards and writes them one after another. Holds one unit as it lies in the
// shards and one coded block.
class UnitWriter {
 public:
  using Progress = std::function<void(std::uint64_t, std::uint64_t)>;

  // `embedding_bytes` will be read besides (embedding_progress()).
  UnitWriter(const UnitTable& table, std::vector<TrunkTensor> order, PackAs as, OutputFile& to,
             const Progress& progress, std::uint64_t embedding_bytes)
      : table_(table),
        order_(std::move(order)),
        as_(as),
        to_(to),
        progress_(progress),
        total_(table.pass_bytes() + embedding_bytes),
        raw_(table.largest_unit_bytes()) {}

  Status open_shards() {
    for (const std::filesystem::path& file : table_.files) {
      K3_ASSIGN(UniqueFd fd, open_for_reading(file, ErrorCode::kWeights));
      shards_.push_back(std::move(fd));
    }
    return {};
  }

  // Writes `unit` at the next place from `offset` on; returns where it ends.
  Result<std::uint64_t> write(const Unit& unit, std::uint64_t offset) {
    K3_TRY(read(unit));
    FileUnit record{.offset = round_up(offset, packed::kUnitAlignment),
                    .bytes = 0,
                    .checksum = 0,
                    .blocks = static_cast<std::uint32_t>(unit.blocks.size()),
                    .reserved = 0};
    StreamingChecksum sum;
    for (const UnitBlock& block : unit.blocks) {
      K3_TRY(write_block(block, record, sum));
    }
    record.checksum = sum.value();
    units_.push_back(record);
    return record.offset + record.bytes;
  }

  std::function<void(std::uint64_t)> embedding_progress() const {
    return [this](std::uint64_t bytes) {
      if (progress_) progress_(done_ + bytes, total_);
    };
  }

  // The records of all units written, and of their blocks.
  std::string records() const {
    std::string bytes;
    for (const FileUnit& unit : units_) append_bytes(bytes, unit);
    for (const FileBlock& block : blocks_) append_bytes(bytes, block);
    return bytes;
  }

 private:
  static constexpr std::uint64_t kReadBytes = std::uint64_t{16} << 20;

  Status read(const Unit& unit) {
    for (const UnitExtent& extent : unit.extents) {
      for (std::uint64_t at = 0; at < extent.length; at += kReadBytes) {
        const std::span<std::byte> piece = std::span(raw_).subspan(
            extent.unit_offset + at, std::min<std::uint64_t>(kReadBytes, extent.length - at));
        K3_TRY(read_exactly(shards_[extent.file].get(), extent.offset + at, piece,
                            table_.files[extent.file]));
        done_ += piece.size();
        if (progress_) progress_(done_, total_);
      }
    }
    return {};
  }

  // Appends a block, at its alignment, to the unit of `record`; what lies between is zero.
  Status write_block(const UnitBlock& block, FileUnit& record, StreamingChecksum& sum) {
    constexpr std::array<std::byte, kBlockAlignment> kPadding{};
    const std::uint64_t at = round_up(record.bytes, kBlockAlignment);
    sum.add(std::span(kPadding).first(at - record.bytes));
    std::span<const std::byte> stored = std::span(raw_).subspan(block.offset, block.length);
    TrunkEncoding encoding = block.encoding;
    const TrunkTensor& tensor = order_[block.tensor];
    std::optional<std::vector<std::byte>> coded;
    if (as_ == PackAs::kCoded && encoding == TrunkEncoding::kRawBf16 && is_product(tensor.role)) {
      coded = encode_bf16(stored, block.rows, tensor.cols, std::thread::hardware_concurrency());
    }
    if (coded) {
      stored = *coded;
      encoding = TrunkEncoding::kCodedBf16;
    }
    sum.add(stored);
    K3_TRY(to_.write(record.offset + at, stored));
    blocks_.push_back({at, stored.size(), block.tensor, block.first_row, block.rows,
                       static_cast<std::uint32_t>(encoding)});
    record.bytes = at + stored.size();
    return {};
  }

  const UnitTable& table_;
  std::vector<TrunkTensor> order_;
  PackAs as_;
  OutputFile& to_;
  const Progress& progress_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::vector<UniqueFd> shards_;
  std::vector<std::byte> raw_;
  std::vector<FileUnit> units_;
  std::vector<FileBlock> blocks_;
};

// Whether one of `files` is sparse: it then says little about the disk its packed form takes.
Result<bool> any_has_holes(const std::vector<std::filesystem::path>& files) {
  for (const std::filesystem::path& path : files) {
    K3_ASSIGN(const UniqueFd fd, open_for_reading(path, ErrorCode::kWeights));
    K3_ASSIGN(const std::uint64_t bytes, file_bytes(fd.get(), path));
    const off_t hole = ::lseek(fd.get(), 0, SEEK_HOLE);
    if (hole >= 0 && static_cast<std::uint64_t>(hole) < bytes) return true;
  }
  return false;
}

}  // namespace

Status write_packed_trunk(const Checkpoint& checkpoint, const std::filesystem::path& directory,
                          std::uint64_t unit_bytes, PackAs as,
                          const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  K3_ASSIGN(const UnitTable table, unit_table_over_shards(checkpoint, unit_bytes));
  const auto vocab = static_cast<std::uint32_t>(checkpoint.config().vocab);
  const std::size_t blocks = count_blocks(table);
  const std::uint64_t table_end = sizeof(FileHeader) + table.units.size() * sizeof(FileUnit) +
                                  blocks * sizeof(FileBlock) + vocab * sizeof(std::uint64_t);
  // Before they are coded the units cannot be larger than this.
  std::uint64_t most_bytes = table_end;
  for (const Unit& unit : table.units) {
    most_bytes = round_up(most_bytes, packed::kUnitAlignment) + unit.bytes;
  }
  K3_ASSIGN(const bool sparse, any_has_holes(table.files));
  const OutputFile::Space space =
      sparse ? OutputFile::Space::kAsNeeded : OutputFile::Space::kReserved;
  K3_ASSIGN(OutputFile file, OutputFile::create(directory / kPackedTrunkFile, most_bytes, space));
  const TensorPlace* const embedding = checkpoint.find(kEmbeddingName);
  UnitWriter writer(table, trunk_order(checkpoint.config()), as, file, progress,
                    embedding ? embedding->bytes : 0);
  K3_TRY(writer.open_shards());
  std::uint64_t end = table_end;
  for (const Unit& unit : table.units) {
    K3_ASSIGN(end, writer.write(unit, end));
  }
  K3_TRY(file.cut(end));

  K3_ASSIGN(const std::vector<std::uint64_t> rows,
            embedding_checksums(checkpoint, writer.embedding_progress()));
  std::string records = writer.records();
  for (const std::uint64_t row : rows) append_bytes(records, row);
  FileHeader header{.magic = packed::kMagic,
                    .version = packed::kVersion,
                    .layers = static_cast<std::uint32_t>(checkpoint.config().layers),
                    .units = static_cast<std::uint32_t>(table.units.size()),
                    .blocks = static_cast<std::uint32_t>(blocks),
                    .head_unit = table.head_unit,
                    .embedding_rows = static_cast<std::uint32_t>(rows.size()),
                    .file_bytes = end,
                    .fingerprint = fingerprint_chars(checkpoint.fingerprint()),
                    .table_checksum = checksum(std::as_bytes(std::span(records))),
                    .header_checksum = 0};
  header.header_checksum = packed::header_checksum(header);
  K3_TRY(file.write(0, std::as_bytes(std::span(&header, 1))));
  K3_TRY(file.write(sizeof header, std::as_bytes(std::span(records))));
  return file.commit();
}

}  // namespace k3
