// Reading and checking trunk.k3t; the file format is in docs/formats.md.
#include "common/checkpoint/packed_trunk.h"

#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/checkpoint/packed_trunk_format.h"

namespace k3 {
namespace {

using packed::FileBlock;
using packed::FileHeader;
using packed::FileUnit;
using packed::kMagic;
using packed::kUnitAlignment;
using packed::kVersion;

// Walks the blocks of all units and holds them against the trunk order: nothing missing, nothing
// twice, nothing out of place.
class BlockChecker {
 public:
  BlockChecker(const std::vector<TrunkTensor>& order, const std::string& file)
      : order_(order), file_(file) {}

  // `end` is where the block before ends in the unit of `unit_bytes`.
  Status check(const FileBlock& block, std::uint64_t end, std::uint64_t unit_bytes) {
    if (tensor_ == order_.size() || block.tensor != tensor_ || block.first_row != row_) {
      return fail(ErrorCode::kWeights, "{}: block of tensor {} row {}, expected tensor {} row {}",
                  file_, block.tensor, block.first_row, tensor_, row_);
    }
    const TrunkTensor& tensor = order_[tensor_];
    if (block.rows == 0 || block.rows > tensor.rows - row_ || block.rows % tensor.row_group != 0) {
      return fail(ErrorCode::kWeights, "{}: {}: {} rows from {} of {} in groups of {}", file_,
                  tensor.name, block.rows, row_, tensor.rows, tensor.row_group);
    }
    if (block.encoding > static_cast<std::uint32_t>(TrunkEncoding::kCodedBf16)) {
      return fail(ErrorCode::kWeights, "{}: {}: unknown encoding {}", file_, tensor.name,
                  block.encoding);
    }
    K3_TRY(check_length(block, tensor));
    if (block.offset < end || block.offset % kBlockAlignment != 0 || block.offset > unit_bytes ||
        block.length > unit_bytes - block.offset) {
      return fail(ErrorCode::kWeights, "{}: {}: {} bytes at {} of a unit of {}, after {}", file_,
                  tensor.name, block.length, block.offset, unit_bytes, end);
    }
    row_ += block.rows;
    if (row_ == tensor.rows) {
      ++tensor_;
      row_ = 0;
    }
    return {};
  }

  // The next block begins this tensor.
  bool at_start_of(std::uint32_t tensor) const { return tensor_ == tensor && row_ == 0; }

 private:
  Status check_length(const FileBlock& block, const TrunkTensor& tensor) const {
    const std::uint64_t values = std::uint64_t{block.rows} * tensor.cols;
    if (TrunkEncoding(block.encoding) == TrunkEncoding::kCodedBf16) {
      // What is inside is checked by who multiplies from it.
      if (is_product(tensor.role) && block.length > 0 && block.length < 2 * values) return {};
      return fail(ErrorCode::kWeights, "{}: {}: {} rows coded in {} bytes, as bf16 they are {}",
                  file_, tensor.name, block.rows, block.length, 2 * values);
    }
    const std::uint64_t length = values * (block.encoding == 0 ? 4 : 2);
    if (block.length == length) return {};
    return fail(ErrorCode::kWeights, "{}: {}: {} rows in {} bytes, expected {}", file_, tensor.name,
                block.rows, block.length, length);
  }

  const std::vector<TrunkTensor>& order_;
  const std::string& file_;
  std::uint32_t tensor_ = 0;
  std::uint32_t row_ = 0;
};

Result<FileHeader> read_header(int fd, const std::filesystem::path& path,
                               const Checkpoint& checkpoint) {
  FileHeader header{};
  const std::string file = path.string();
  K3_TRY(read_exactly(fd, 0, std::as_writable_bytes(std::span(&header, 1)), path));
  K3_TRY(check_kind(header.magic, kMagic, header.version, kVersion, file));
  if (packed::header_checksum(header) != header.header_checksum) {
    return fail(ErrorCode::kWeights, "{}: header checksum {:016x}, expected {:016x}", file,
                packed::header_checksum(header), header.header_checksum);
  }
  K3_ASSIGN(const std::uint64_t bytes, file_bytes(fd, path));
  if (bytes != header.file_bytes) {
    return fail(ErrorCode::kWeights, "{}: {} bytes, expected {}", file, bytes, header.file_bytes);
  }
  const std::string_view fingerprint(header.fingerprint.data(), header.fingerprint.size());
  if (fingerprint != checkpoint.fingerprint()) {
    return fail(ErrorCode::kWeights,
                "{}: packed from checkpoint {} with {} layers, this one is {} with {}; run k3 pack "
                "again",
                file, fingerprint, header.layers, checkpoint.fingerprint(),
                checkpoint.config().layers);
  }
  return header;
}

// The bytes of the units' and blocks' records, checksum verified.
Result<std::string> read_table(int fd, const std::filesystem::path& path,
                               const FileHeader& header) {
  const std::uint64_t bytes = std::uint64_t{header.units} * sizeof(FileUnit) +
                              std::uint64_t{header.blocks} * sizeof(FileBlock) +
                              std::uint64_t{header.embedding_rows} * sizeof(std::uint64_t);
  if (bytes > header.file_bytes - sizeof(FileHeader)) {
    return fail(ErrorCode::kWeights, "{}: a table of {} bytes in a file of {}", path.string(),
                bytes, header.file_bytes);
  }
  std::string table(bytes, '\0');
  K3_TRY(read_exactly(fd, sizeof(FileHeader), std::as_writable_bytes(std::span(table)), path));
  const std::uint64_t found = checksum(std::as_bytes(std::span(table)));
  if (found != header.table_checksum) {
    return fail(ErrorCode::kWeights, "{}: table checksum {:016x}, expected {:016x}", path.string(),
                found, header.table_checksum);
  }
  return table;
}

Status check_unit(const FileUnit& unit, std::size_t number, std::uint64_t end,
                  const FileHeader& header, const std::string& file) {
  if (unit.offset < end || unit.offset % kUnitAlignment != 0 || unit.offset > header.file_bytes ||
      unit.bytes > header.file_bytes - unit.offset || unit.bytes == 0 || unit.blocks == 0) {
    return fail(ErrorCode::kWeights, "{}: unit {}: {} blocks, {} bytes at {} of {}, after {}", file,
                number, unit.blocks, unit.bytes, unit.offset, header.file_bytes, end);
  }
  return {};
}

// Checks every record and builds the units from them.
Status fill_units(UnitTable& table, const FileHeader& header, const std::string& records,
                  const std::vector<TrunkTensor>& order, const std::string& file) {
  BinaryReader reader(records, file);
  K3_ASSIGN(const std::vector<FileUnit> units, reader.take_many<FileUnit>(header.units));
  K3_ASSIGN(const std::vector<FileBlock> blocks, reader.take_many<FileBlock>(header.blocks));
  K3_ASSIGN(table.embedding_checksums, reader.take_many<std::uint64_t>(header.embedding_rows));
  BlockChecker checker(order, file);
  std::uint64_t file_end = sizeof(FileHeader) + records.size();
  std::size_t next = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    K3_TRY(check_unit(units[i], i, file_end, header, file));
    if (units[i].blocks > blocks.size() - next) {
      return fail(ErrorCode::kWeights, "{}: unit {}: {} blocks, {} are left", file, i,
                  units[i].blocks, blocks.size() - next);
    }
    if ((i == header.head_unit) != checker.at_start_of(first_head_tensor(order))) {
      return fail(ErrorCode::kWeights, "{}: the head begins at unit {}, the header says {}", file,
                  i, header.head_unit);
    }
    Unit& unit = table.units.emplace_back();
    std::uint64_t unit_end = 0;
    for (std::uint32_t b = 0; b < units[i].blocks; ++b, ++next) {
      const FileBlock& block = blocks[next];
      K3_TRY(checker.check(block, unit_end, units[i].bytes));
      unit_end = block.offset + block.length;
      unit.blocks.push_back({block.tensor, block.first_row, block.rows,
                             TrunkEncoding(block.encoding), block.offset, block.length});
    }
    unit.bytes = units[i].bytes;
    unit.extents = {{.file = 0, .offset = units[i].offset, .length = unit.bytes, .unit_offset = 0}};
    unit.checksum = units[i].checksum;
    file_end = units[i].offset + units[i].bytes;
  }
  if (header.head_unit >= header.units || next != blocks.size() ||
      !checker.at_start_of(static_cast<std::uint32_t>(order.size()))) {
    return fail(ErrorCode::kWeights,
                "{}: {} units hold {} of {} blocks and not the whole trunk, or no head ({})", file,
                units.size(), next, blocks.size(), header.head_unit);
  }
  return {};
}

}  // namespace

Result<UnitTable> open_packed_trunk(const std::filesystem::path& directory,
                                    const Checkpoint& checkpoint) {
  const std::filesystem::path path = directory / kPackedTrunkFile;
  K3_ASSIGN(const UniqueFd fd, open_for_reading(path, ErrorCode::kWeights));
  K3_ASSIGN(const FileHeader header, read_header(fd.get(), path, checkpoint));
  K3_ASSIGN(const std::string records, read_table(fd.get(), path, header));
  UnitTable table{.fingerprint = checkpoint.fingerprint(),
                  .files = {path},
                  .units = {},
                  .head_unit = header.head_unit,
                  .embedding_checksums = {}};
  K3_TRY(fill_units(table, header, records, trunk_order(checkpoint.config()), path.string()));
  return table;
}

}  // namespace k3
