// Writing and checking trunk.k3t; the file format is in docs/formats.md.
#include "common/checkpoint/packed_trunk.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/checkpoint/binary_file.h"
#include "common/checkpoint/embedding_checksums.h"
#include "common/storage/output_file.h"
#include "common/storage/streaming_checksum.h"

namespace k3 {
namespace {

constexpr std::array<char, 8> kMagic = {'K', '3', 'T', 'R', 'U', 'N', 'K', '\0'};
constexpr std::uint32_t kVersion = 2;
constexpr std::uint64_t kUnitAlignment = 4096;
constexpr std::size_t kCopyBytes = std::size_t{16} << 20;

// The file begins with FileHeader, one FileUnit a unit, the FileBlocks and the checksums of the
// embedding's rows; units follow, each at a
// multiple of kUnitAlignment.
struct FileHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t layers;  // in use when it was packed
  std::uint32_t units;
  std::uint32_t blocks;
  std::uint32_t head_unit;
  std::uint32_t embedding_rows;
  std::uint64_t file_bytes;
  std::array<char, kFingerprintChars> fingerprint;
  std::uint64_t table_checksum;   // XXH3-64 of units, blocks and embedding checksums
  std::uint64_t header_checksum;  // XXH3-64 of the bytes before this field
};
static_assert(sizeof(FileHeader) == 88);
static_assert(offsetof(FileHeader, header_checksum) + sizeof(std::uint64_t) == sizeof(FileHeader));

struct FileUnit {
  std::uint64_t offset;  // in the file
  std::uint64_t bytes;
  std::uint64_t checksum;  // XXH3-64 of the unit's bytes, padding included
  std::uint32_t blocks;    // they follow those of the unit before
  std::uint32_t reserved;  // 0
};
static_assert(sizeof(FileUnit) == 32);

struct FileBlock {
  std::uint64_t offset;  // in the unit
  std::uint64_t length;
  std::uint32_t tensor;  // index in the trunk order
  std::uint32_t first_row;
  std::uint32_t rows;
  std::uint32_t encoding;
};
static_assert(sizeof(FileBlock) == 32);

std::uint64_t aligned(std::uint64_t offset) {
  return (offset + kUnitAlignment - 1) / kUnitAlignment * kUnitAlignment;
}

std::uint64_t header_checksum(const FileHeader& header) {
  return checksum(
      std::as_bytes(std::span(&header, 1)).first(offsetof(FileHeader, header_checksum)));
}

std::size_t count_blocks(const UnitTable& table) {
  std::size_t blocks = 0;
  for (const Unit& unit : table.units) blocks += unit.blocks.size();
  return blocks;
}

// Copies units from the shards through one buffer.
class Copier {
 public:
  using Progress = std::function<void(std::uint64_t, std::uint64_t)>;

  // `more_bytes` will be read besides (more_progress()).
  Copier(const UnitTable& table, OutputFile& to, const Progress& progress, std::uint64_t more_bytes)
      : table_(table), to_(to), progress_(progress), total_(table.pass_bytes() + more_bytes) {}

  Status open_shards() {
    for (const std::filesystem::path& file : table_.files) {
      K3_ASSIGN(UniqueFd fd, open_for_reading(file, ErrorCode::kWeights));
      shards_.push_back(std::move(fd));
    }
    return {};
  }

  // Progress in bytes of what is read after the units.
  std::function<void(std::uint64_t)> more_progress() const {
    return [this](std::uint64_t bytes) {
      if (progress_) progress_(done_ + bytes, total_);
    };
  }

  // Writes the unit at `offset`; returns its checksum. Padding between blocks stays zero.
  Result<std::uint64_t> copy(const Unit& unit, std::uint64_t offset) {
    constexpr std::array<std::byte, kBlockAlignment> kPadding{};
    StreamingChecksum sum;
    std::uint64_t end = 0;
    for (const UnitExtent& extent : unit.extents) {
      sum.add(std::span(kPadding).first(extent.unit_offset - end));
      K3_TRY(copy_extent(extent, offset + extent.unit_offset, sum));
      end = extent.unit_offset + extent.length;
    }
    return sum.value();
  }

 private:
  Status copy_extent(const UnitExtent& extent, std::uint64_t to, StreamingChecksum& sum) {
    for (std::uint64_t at = 0; at < extent.length; at += kCopyBytes) {
      const std::span<std::byte> piece =
          std::span(buffer_).first(std::min<std::uint64_t>(kCopyBytes, extent.length - at));
      K3_TRY(read_exactly(shards_[extent.file].get(), extent.offset + at, piece,
                          table_.files[extent.file]));
      sum.add(piece);
      K3_TRY(to_.write(to + at, piece));
      done_ += piece.size();
      if (progress_) progress_(done_, total_);
    }
    return {};
  }

  const UnitTable& table_;
  OutputFile& to_;
  const Progress& progress_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::vector<UniqueFd> shards_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kCopyBytes);
};

// Where each unit goes, checksums still 0.
std::vector<FileUnit> place_units(const UnitTable& table, std::uint64_t first_offset) {
  std::vector<FileUnit> units;
  std::uint64_t offset = first_offset;
  for (const Unit& unit : table.units) {
    offset = aligned(offset);
    units.push_back({.offset = offset,
                     .bytes = unit.bytes,
                     .checksum = 0,
                     .blocks = static_cast<std::uint32_t>(unit.blocks.size()),
                     .reserved = 0});
    offset += unit.bytes;
  }
  return units;
}

std::string table_bytes(const UnitTable& table, const std::vector<FileUnit>& units,
                        const std::vector<std::uint64_t>& embedding) {
  std::string bytes;
  for (const FileUnit& unit : units) append_bytes(bytes, unit);
  for (const Unit& unit : table.units) {
    for (const UnitBlock& block : unit.blocks) {
      append_bytes(bytes, FileBlock{block.offset, block.length, block.tensor, block.first_row,
                                    block.rows, static_cast<std::uint32_t>(block.encoding)});
    }
  }
  for (const std::uint64_t row : embedding) append_bytes(bytes, row);
  return bytes;
}

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
    if (block.encoding > static_cast<std::uint32_t>(TrunkEncoding::kRawBf16)) {
      return fail(ErrorCode::kWeights, "{}: {}: unknown encoding {}", file_, tensor.name,
                  block.encoding);
    }
    const std::uint64_t element_bytes = block.encoding == 0 ? 4 : 2;
    const std::uint64_t length = std::uint64_t{block.rows} * tensor.cols * element_bytes;
    if (block.length != length) {
      return fail(ErrorCode::kWeights, "{}: {}: {} rows in {} bytes, expected {}", file_,
                  tensor.name, block.rows, block.length, length);
    }
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
  if (header_checksum(header) != header.header_checksum) {
    return fail(ErrorCode::kWeights, "{}: header checksum {:016x}, expected {:016x}", file,
                header_checksum(header), header.header_checksum);
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

Status write_packed_trunk(const Checkpoint& checkpoint, const std::filesystem::path& directory,
                          std::uint64_t unit_bytes,
                          const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  K3_ASSIGN(const UnitTable table, unit_table_over_shards(checkpoint, unit_bytes));
  const std::size_t blocks = count_blocks(table);
  const std::uint64_t table_end = sizeof(FileHeader) + table.units.size() * sizeof(FileUnit) +
                                  blocks * sizeof(FileBlock) +
                                  checkpoint.config().vocab * sizeof(std::uint64_t);
  std::vector<FileUnit> units = place_units(table, table_end);
  const std::uint64_t file_bytes = units.back().offset + units.back().bytes;

  K3_ASSIGN(OutputFile file, OutputFile::create(directory / kPackedTrunkFile, file_bytes));
  const TensorPlace* const embedding_place = checkpoint.find(kEmbeddingName);
  Copier copier(table, file, progress, embedding_place ? embedding_place->bytes : 0);
  K3_TRY(copier.open_shards());
  for (std::size_t i = 0; i < units.size(); ++i) {
    K3_ASSIGN(units[i].checksum, copier.copy(table.units[i], units[i].offset));
  }

  K3_ASSIGN(const std::vector<std::uint64_t> embedding,
            embedding_checksums(checkpoint, copier.more_progress()));
  const std::string records = table_bytes(table, units, embedding);
  FileHeader header{.magic = kMagic,
                    .version = kVersion,
                    .layers = static_cast<std::uint32_t>(checkpoint.config().layers),
                    .units = static_cast<std::uint32_t>(units.size()),
                    .blocks = static_cast<std::uint32_t>(blocks),
                    .head_unit = table.head_unit,
                    .embedding_rows = static_cast<std::uint32_t>(embedding.size()),
                    .file_bytes = file_bytes,
                    .fingerprint = fingerprint_chars(checkpoint.fingerprint()),
                    .table_checksum = checksum(std::as_bytes(std::span(records))),
                    .header_checksum = 0};
  header.header_checksum = header_checksum(header);
  K3_TRY(file.write(0, std::as_bytes(std::span(&header, 1))));
  K3_TRY(file.write(sizeof header, std::as_bytes(std::span(records))));
  return file.commit();
}

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
