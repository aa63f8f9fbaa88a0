// Cuts the trunk into units; see unit_table.h.
#include "common/checkpoint/unit_table.h"

#include <algorithm>

#include "common/base/check.h"

namespace k3 {
namespace {

std::uint64_t aligned(std::uint64_t offset) {
  return (offset + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

// Appends runs of rows, in order, to units of at most `limit` bytes.
class Cutter {
 public:
  Cutter(UnitTable& table, std::uint64_t limit) : table_(table), limit_(limit) {}

  // Where a block of `bytes` would end in the unit being filled.
  bool fits(std::uint64_t bytes) const {
    return !closed_ && aligned(table_.units.back().bytes) + bytes <= limit_;
  }

  void close() { closed_ = true; }

  void append(UnitBlock block, const TensorPlace& place, std::uint64_t row_bytes) {
    if (closed_) table_.units.emplace_back();
    closed_ = false;
    Unit& unit = table_.units.back();
    block.offset = aligned(unit.bytes);
    unit.bytes = block.offset + block.length;
    append_extent(unit, {.file = place.shard,
                         .offset = place.offset + block.first_row * row_bytes,
                         .length = block.length,
                         .unit_offset = block.offset});
    unit.blocks.push_back(block);
  }

 private:
  static void append_extent(Unit& unit, const UnitExtent& extent) {
    if (!unit.extents.empty()) {
      UnitExtent& last = unit.extents.back();
      if (last.file == extent.file && last.offset + last.length == extent.offset &&
          last.unit_offset + last.length == extent.unit_offset) {
        last.length += extent.length;
        return;
      }
    }
    unit.extents.push_back(extent);
  }

  UnitTable& table_;
  std::uint64_t limit_;
  bool closed_ = true;
};

Status append_tensor(Cutter& cutter, const TrunkTensor& tensor, std::uint32_t number,
                     const TensorPlace& place, std::uint64_t unit_bytes) {
  K3_CHECK(place.dtype == DType::kF32 || place.dtype == DType::kBf16, tensor.name);
  const std::uint64_t row_bytes = tensor.cols * bytes_of(place.dtype);
  // A padded A_log stores more than is used.
  K3_CHECK(tensor.rows * row_bytes <= place.bytes, tensor.name);
  const std::uint64_t group_bytes = tensor.row_group * row_bytes;
  if (group_bytes > unit_bytes) {
    return fail(ErrorCode::kUsage,
                "tensor {}: {} rows that belong together are {} bytes, a unit {}", tensor.name,
                tensor.row_group, group_bytes, unit_bytes);
  }
  if (!cutter.fits(tensor.rows * row_bytes)) cutter.close();
  const auto most_rows = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(tensor.rows, unit_bytes / group_bytes * tensor.row_group));
  for (std::uint32_t row = 0; row < tensor.rows; row += most_rows) {
    const std::uint32_t rows = std::min(most_rows, tensor.rows - row);
    if (row > 0) cutter.close();
    cutter.append(
        {.tensor = number,
         .first_row = row,
         .rows = rows,
         .encoding = place.dtype == DType::kF32 ? TrunkEncoding::kRawF32 : TrunkEncoding::kRawBf16,
         .offset = 0,
         .length = rows * row_bytes},
        place, row_bytes);
  }
  return {};
}

}  // namespace

std::uint64_t UnitTable::pass_bytes() const {
  std::uint64_t bytes = 0;
  for (const Unit& unit : units) {
    for (const UnitExtent& extent : unit.extents) bytes += extent.length;
  }
  return bytes;
}

std::uint64_t UnitTable::largest_unit_bytes() const {
  std::uint64_t largest = 0;
  for (const Unit& unit : units) largest = std::max(largest, unit.bytes);
  return largest;
}

Result<UnitTable> unit_table_over_shards(const Checkpoint& checkpoint, std::uint64_t unit_bytes) {
  UnitTable table;
  table.fingerprint = checkpoint.fingerprint();
  for (const Shard& shard : checkpoint.shards()) table.files.push_back(shard.path);

  const std::vector<TrunkTensor> order = trunk_order(checkpoint.config());
  const std::uint32_t head = first_head_tensor(order);
  Cutter cutter(table, unit_bytes);
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    const TensorPlace* place = checkpoint.find(order[i].name);
    K3_CHECK(place != nullptr, order[i].name);
    if (i == head) {
      cutter.close();
      table.head_unit = static_cast<std::uint32_t>(table.units.size());
    }
    K3_TRY(append_tensor(cutter, order[i], i, *place, unit_bytes));
  }
  return table;
}

}  // namespace k3
