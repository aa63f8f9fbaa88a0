// Units: what the trunk streamer reads, caches and delivers. One table describes the shards as they
// lie or the packed file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/trunk_order.h"

namespace k3 {

// Every block begins at a multiple of this many bytes in its unit, so that its values are aligned.
inline constexpr std::uint64_t kBlockAlignment = 64;

// A run of rows of one trunk tensor inside a unit.
struct UnitBlock {
  std::uint32_t tensor = 0;  // index in the trunk order
  std::uint32_t first_row = 0;
  std::uint32_t rows = 0;
  TrunkEncoding encoding = TrunkEncoding::kRawBf16;
  std::uint64_t offset = 0;  // in the unit
  std::uint64_t length = 0;  // bytes
};

// One read: `length` bytes of `file` at `offset`, to `unit_offset` in the unit.
struct UnitExtent {
  std::uint32_t file = 0;  // index into UnitTable::files
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t unit_offset = 0;
};

struct Unit {
  std::vector<UnitBlock> blocks;    // in order of use
  std::vector<UnitExtent> extents;  // cover all blocks; the padding between them is not read
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> checksum;  // XXH3-64, in a packed file
};

struct UnitTable {
  std::string fingerprint;
  std::vector<std::filesystem::path> files;
  std::vector<Unit> units;      // in pass order
  std::uint32_t head_unit = 0;  // units from here on hold only tensors of the output head
  std::vector<std::uint64_t> embedding_checksums;  // XXH3-64 by token id, in a packed file

  std::uint64_t pass_bytes() const;  // read in one pass: the sum of all extents
  std::uint64_t largest_unit_bytes() const;
};

// Cuts the trunk of `checkpoint` into units of at most `unit_bytes`, read from the shards as they
// lie. Whole tensors are kept together; one that is larger is cut at row-group boundaries; the head
// starts a unit of its own. kUsage when one row group does not fit, naming the tensor and both
// numbers.
Result<UnitTable> unit_table_over_shards(const Checkpoint& checkpoint, std::uint64_t unit_bytes);

}  // namespace k3
