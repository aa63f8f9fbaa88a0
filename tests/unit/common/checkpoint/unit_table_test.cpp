// Units over the shards: every row once, in order, whole tensors together, the head apart.
#include "common/checkpoint/unit_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "common/base/file.h"
#include "tests/unit/support/temp_dir.h"
#include "tests/unit/support/tiny_checkpoint.h"

namespace k3 {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class UnitTableTest : public testing::TestWithParam<std::tuple<bool, std::uint64_t>> {
 protected:
  void write(const test::TinyOptions& options) {
    source_ = test::make_tiny_checkpoint(options);
    test::write_tiny_checkpoint(source_, folder_.path() / "model");
    checkpoint_ = Checkpoint::open(folder_.path() / "model", {}).value();
  }

  // The unit's bytes, read as the streamer reads them.
  static std::string read(const UnitTable& table, const Unit& unit) {
    std::string bytes(unit.bytes, '\x55');
    const auto into = std::as_writable_bytes(std::span(bytes));
    for (const UnitExtent& extent : unit.extents) {
      const auto& file = table.files[extent.file];
      EXPECT_TRUE(read_exactly(open_for_reading(file).value().get(), extent.offset,
                               into.subspan(extent.unit_offset, extent.length), file));
    }
    return bytes;
  }

  test::TempDir folder_;
  test::TinyCheckpoint source_;
  std::optional<Checkpoint> checkpoint_;
};

TEST_P(UnitTableTest, DeliversEveryTensorInOrder) {
  const auto [scattered, unit_bytes] = GetParam();
  write({.kda_heads = 3, .experts = 5, .f32_small_tensors = scattered, .scattered = scattered});
  const UnitTable table = unit_table_over_shards(*checkpoint_, unit_bytes).value();
  EXPECT_EQ(table.fingerprint, checkpoint_->fingerprint());

  const std::vector<TrunkTensor> order = trunk_order(checkpoint_->config());
  std::vector<std::string> joined(order.size());
  std::uint32_t last_tensor = 0;
  for (std::size_t u = 0; u < table.units.size(); ++u) {
    const Unit& unit = table.units[u];
    EXPECT_LE(unit.bytes, unit_bytes);
    EXPECT_FALSE(unit.checksum);
    ASSERT_FALSE(unit.blocks.empty());
    const std::string bytes = read(table, unit);
    for (const UnitBlock& block : unit.blocks) {
      EXPECT_GE(block.tensor, last_tensor);
      last_tensor = block.tensor;
      EXPECT_EQ(block.offset % kBlockAlignment, 0u);
      EXPECT_EQ(block.rows % order[block.tensor].row_group, 0u);
      EXPECT_EQ(block.tensor >= first_head_tensor(order), u >= table.head_unit);
      joined[block.tensor] += bytes.substr(block.offset, block.length);
    }
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    const test::TinyTensor& tensor = source_.at(order[i].name);
    const std::size_t element = tensor.dtype == "F32" ? 4 : 2;
    // A_log: the heads without their padding.
    EXPECT_EQ(joined[i], tensor.data.substr(0, element * order[i].rows * order[i].cols))
        << order[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, UnitTableTest,
                         testing::Combine(testing::Bool(),
                                          testing::Values(700, 2000, 1 << 14, 1 << 30)));

TEST_F(UnitTableTest, WholeTensorsStayTogetherAndLargerOnesAreCut) {
  write({});
  constexpr std::uint64_t kUnit = 4096;
  const UnitTable table = unit_table_over_shards(*checkpoint_, kUnit).value();
  const std::vector<TrunkTensor> order = trunk_order(checkpoint_->config());
  std::map<std::uint32_t, int> blocks;
  for (const Unit& unit : table.units) {
    for (const UnitBlock& block : unit.blocks) ++blocks[block.tensor];
  }
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    const std::size_t elements = std::size_t{order[i].rows} * order[i].cols;
    const std::size_t bytes = elements * bytes_of(checkpoint_->find(order[i].name)->dtype);
    if (bytes <= kUnit) {
      EXPECT_EQ(blocks[i], 1) << order[i].name;
    } else {
      EXPECT_GT(blocks[i], 1) << order[i].name;
    }
  }
}

TEST_F(UnitTableTest, OneUnitHoldsAllLayersAndOneTheHead) {
  write({});
  const UnitTable table = unit_table_over_shards(*checkpoint_, 1 << 30).value();
  EXPECT_EQ(table.units.size(), 2u);
  EXPECT_EQ(table.head_unit, 1u);
  EXPECT_EQ(table.largest_unit_bytes(), std::max(table.units[0].bytes, table.units[1].bytes));
}

TEST_F(UnitTableTest, PassBytesAreTheBytesOfAllTensors) {
  write({});
  std::uint64_t bytes = 0;
  for (const TrunkTensor& tensor : trunk_order(checkpoint_->config())) {
    bytes +=
        std::uint64_t{tensor.rows} * tensor.cols * bytes_of(checkpoint_->find(tensor.name)->dtype);
  }
  EXPECT_EQ(unit_table_over_shards(*checkpoint_, 4096).value().pass_bytes(), bytes);
}

TEST_F(UnitTableTest, AdjacentTensorsAreOneRead) {
  write({});
  const UnitTable table = unit_table_over_shards(*checkpoint_, 1 << 30).value();
  std::size_t reads = 0;
  std::size_t blocks = 0;
  for (const Unit& unit : table.units) {
    reads += unit.extents.size();
    blocks += unit.blocks.size();
    for (std::size_t i = 1; i < unit.extents.size(); ++i) {
      const UnitExtent& a = unit.extents[i - 1];
      const UnitExtent& b = unit.extents[i];
      EXPECT_FALSE(a.file == b.file && a.offset + a.length == b.offset &&
                   a.unit_offset + a.length == b.unit_offset);
    }
  }
  EXPECT_LT(reads, blocks);  // mlp_res_norm and mlp_res_proj, at least, lie end to end
}

TEST_F(UnitTableTest, RowGroupThatDoesNotFitIsNamed) {
  write({});
  // One head of kv_b: (12 + 8) rows of 16 bf16 values.
  const Result<UnitTable> table = unit_table_over_shards(*checkpoint_, 639);
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().code, ErrorCode::kUsage);
  EXPECT_THAT(table.error().message,
              AllOf(HasSubstr("kv_b_proj"), HasSubstr("640"), HasSubstr("639")));
  EXPECT_TRUE(unit_table_over_shards(*checkpoint_, 640));
}

}  // namespace
}  // namespace k3
