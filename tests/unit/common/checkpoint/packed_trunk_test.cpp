// The packed trunk: the same bytes as the shards, every damage refused before use.
#include "common/checkpoint/packed_trunk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <fstream>

#include "common/base/file.h"
#include "tests/unit/support/temp_dir.h"
#include "tests/unit/support/tiny_checkpoint.h"

namespace k3 {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Places in the file, from docs/formats.md.
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kUnitsAt = 16;
constexpr std::size_t kBlocksAt = 20;
constexpr std::size_t kHeadUnitAt = 24;
constexpr std::size_t kEmbeddingRowsAt = 28;
constexpr std::size_t kTableChecksumAt = 72;
constexpr std::size_t kHeaderChecksumAt = 80;
constexpr std::size_t kTableAt = 88;
constexpr std::size_t kRecordBytes = 32;

class PackedTrunkTest : public testing::Test {
 protected:
  PackedTrunkTest() {
    test::write_tiny_checkpoint(test::TinyOptions{}, model_);
    checkpoint_ = Checkpoint::open(model_, {}).value();
    const Status packed = write_packed_trunk(*checkpoint_, folder_.path(), 5000, PackAs::kRaw, {});
    if (!packed) throw std::runtime_error(packed.error().message);
    bytes_ = read_text_file(file(), 1 << 30).value();
  }

  std::filesystem::path file() const { return folder_.path() / kPackedTrunkFile; }

  template <class Number>
  Number number_at(std::size_t at) const {
    Number number;
    std::memcpy(&number, &bytes_[at], sizeof number);
    return number;
  }
  template <class Number>
  void set(std::size_t at, Number number) {
    std::memcpy(&bytes_[at], &number, sizeof number);
  }

  std::size_t block_at(std::size_t block) const {
    return kTableAt + kRecordBytes * (number_at<std::uint32_t>(kUnitsAt) + block);
  }

  // Both checksums made right again, so that the check behind them is reached.
  void seal() {
    const std::size_t table_bytes =
        kRecordBytes * (std::size_t{number_at<std::uint32_t>(kUnitsAt)} +
                        number_at<std::uint32_t>(kBlocksAt)) +
        sizeof(std::uint64_t) * number_at<std::uint32_t>(kEmbeddingRowsAt);
    if (kTableAt + table_bytes <= bytes_.size()) {
      set(kTableChecksumAt, XXH3_64bits(&bytes_[kTableAt], table_bytes));
    }
    set(kHeaderChecksumAt, XXH3_64bits(bytes_.data(), kHeaderChecksumAt));
  }

  std::string refusal() {
    std::ofstream(file(), std::ios::binary | std::ios::trunc) << bytes_;
    const Result<UnitTable> table = open_packed_trunk(folder_.path(), *checkpoint_);
    if (table) return "accepted";
    EXPECT_EQ(table.error().code, ErrorCode::kWeights);
    EXPECT_THAT(table.error().message, HasSubstr(kPackedTrunkFile));
    return table.error().message;
  }

  test::TempDir folder_;
  std::filesystem::path model_ = folder_.path() / "model";
  std::optional<Checkpoint> checkpoint_;
  std::string bytes_;
};

TEST_F(PackedTrunkTest, HoldsTheBytesOfTheShards) {
  const UnitTable packed = open_packed_trunk(folder_.path(), *checkpoint_).value();
  const UnitTable shards = unit_table_over_shards(*checkpoint_, 5000).value();
  ASSERT_EQ(packed.units.size(), shards.units.size());
  EXPECT_EQ(packed.head_unit, shards.head_unit);
  EXPECT_EQ(packed.fingerprint, checkpoint_->fingerprint());
  for (std::size_t u = 0; u < packed.units.size(); ++u) {
    const Unit& unit = packed.units[u];
    ASSERT_EQ(unit.bytes, shards.units[u].bytes);
    ASSERT_EQ(unit.extents.size(), 1u);
    EXPECT_EQ(unit.extents[0].offset % 4096, 0u);
    const std::string stored = bytes_.substr(unit.extents[0].offset, unit.bytes);
    EXPECT_EQ(unit.checksum, XXH3_64bits(stored.data(), stored.size()));
    std::string wanted(unit.bytes, '\0');  // padding is zero
    for (const UnitExtent& extent : shards.units[u].extents) {
      const auto& shard = shards.files[extent.file];
      ASSERT_TRUE(read_exactly(
          open_for_reading(shard).value().get(), extent.offset,
          std::as_writable_bytes(std::span(wanted)).subspan(extent.unit_offset, extent.length),
          shard));
    }
    EXPECT_EQ(stored, wanted) << "unit " << u;
    ASSERT_EQ(unit.blocks.size(), shards.units[u].blocks.size());
    for (std::size_t b = 0; b < unit.blocks.size(); ++b) {
      const UnitBlock& here = unit.blocks[b];
      const UnitBlock& there = shards.units[u].blocks[b];
      EXPECT_EQ(
          std::tie(here.tensor, here.first_row, here.rows, here.encoding, here.offset, here.length),
          std::tie(there.tensor, there.first_row, there.rows, there.encoding, there.offset,
                   there.length));
    }
  }
}

TEST_F(PackedTrunkTest, ProgressEndsAtTheTotal) {
  std::uint64_t last = 0;
  std::uint64_t total = 0;
  ASSERT_TRUE(write_packed_trunk(*checkpoint_, folder_.path(), 5000, PackAs::kCoded,
                                 [&](std::uint64_t done, std::uint64_t all) {
                                   EXPECT_GE(done, last);
                                   last = done;
                                   total = all;
                                 }));
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, unit_table_over_shards(*checkpoint_, 5000).value().pass_bytes() +
                       checkpoint_->find(kEmbeddingName)->bytes);
}

TEST_F(PackedTrunkTest, HoldsAChecksumOfEachEmbeddingRow) {
  const UnitTable packed = open_packed_trunk(folder_.path(), *checkpoint_).value();
  const TensorPlace& place = *checkpoint_->find(kEmbeddingName);
  const auto& shard = checkpoint_->shards()[place.shard].path;
  std::string table(place.bytes, '\0');
  ASSERT_TRUE(read_exactly(open_for_reading(shard).value().get(), place.offset,
                           std::as_writable_bytes(std::span(table)), shard));
  ASSERT_EQ(packed.embedding_checksums.size(), place.shape[0]);
  const std::size_t row_bytes = table.size() / place.shape[0];
  for (std::size_t id = 0; id < place.shape[0]; ++id) {
    EXPECT_EQ(packed.embedding_checksums[id], XXH3_64bits(&table[id * row_bytes], row_bytes));
  }
}

TEST_F(PackedTrunkTest, CutOffAnywhereIsRefused) {
  const std::string whole = bytes_;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{7}, kTableAt - 1, kTableAt,
                                  std::size_t{4096}, whole.size() - 1}) {
    bytes_ = whole.substr(0, bytes);
    EXPECT_NE(refusal(), "accepted") << bytes;
  }
  bytes_ = whole + "x";
  EXPECT_THAT(refusal(), AllOf(HasSubstr(std::to_string(whole.size())),
                               HasSubstr(std::to_string(whole.size() + 1))));
}

TEST_F(PackedTrunkTest, AnyFlippedByteOfHeaderOrTableIsRefused) {
  const std::size_t end = block_at(number_at<std::uint32_t>(kBlocksAt));
  for (std::size_t at = 0; at < end; at += 13) {
    bytes_[at] ^= 0x10;
    EXPECT_NE(refusal(), "accepted") << at;
    bytes_[at] ^= 0x10;
  }
  EXPECT_EQ(refusal(), "accepted");  // and whole again
}

TEST_F(PackedTrunkTest, AnotherVersionIsNamed) {
  set<std::uint32_t>(kVersionAt, 9);
  seal();
  EXPECT_THAT(refusal(), AllOf(HasSubstr("version 9"), HasSubstr("reads 2")));
}

TEST_F(PackedTrunkTest, AnotherCheckpointIsRefusedWithBothFingerprints) {
  const auto other = folder_.path() / "other";
  test::write_tiny_checkpoint(test::TinyOptions{.seed = 2}, other);
  const std::string packed_from = checkpoint_->fingerprint();
  checkpoint_ = Checkpoint::open(other, {}).value();
  EXPECT_THAT(refusal(), AllOf(HasSubstr(packed_from), HasSubstr(checkpoint_->fingerprint())));
}

TEST_F(PackedTrunkTest, FewerLayersAreAnotherTrunk) {
  checkpoint_ = Checkpoint::open(model_, {.layers = 2}).value();
  EXPECT_THAT(refusal(), AllOf(HasSubstr("4 layers"), HasSubstr("with 2")));
}

TEST_F(PackedTrunkTest, SealedNonsenseIsRefusedByItsOwnCheck) {
  struct Case {
    std::size_t at;
    std::uint64_t value;
    bool wide;
    const char* named;
  };
  const std::size_t unit = kTableAt + kRecordBytes;  // the second
  const std::size_t block = block_at(3);
  const std::vector<Case> cases = {
      {kUnitsAt, 0xffffffff, false, "a table of"},
      {kBlocksAt, 0xffffffff, false, "a table of"},
      {kHeadUnitAt, 0, false, "head"},
      {kHeadUnitAt, 1'000'000, false, "head"},
      {unit, 4097, true, "unit 1"},               // not aligned
      {unit, 0, true, "unit 1"},                  // over the header
      {unit, ~0ull - 4095, true, "unit 1"},       // behind the end
      {unit + 8, ~0ull, true, "unit 1"},          // longer than the file
      {unit + 8, 0, true, "unit 1"},              // empty
      {unit + 24, 1'000'000, false, "are left"},  // too many blocks
      {block, 32, true, "at 32"},                 // overlaps the one before
      {block, ~0ull - 63, true, "of a unit"},
      {block + 8, 3, true, "in 3 bytes"},
      {block + 16, 77, false, "tensor 77"},
      {block + 20, 1, false, "row 1"},
      {block + 24, 0, false, "0 rows"},
      {block + 24, 0xffffffff, false, "rows"},
      {block + 28, 2, false, "rows coded in"},
      {block + 28, 3, false, "encoding 3"},
  };
  const std::string whole = bytes_;
  for (const Case& damage : cases) {
    bytes_ = whole;
    if (damage.wide) {
      set(damage.at, damage.value);
    } else {
      set(damage.at, static_cast<std::uint32_t>(damage.value));
    }
    seal();
    EXPECT_THAT(refusal(), HasSubstr(damage.named)) << "at " << damage.at;
  }
}

TEST_F(PackedTrunkTest, MissingLastBlockIsRefused) {
  const auto units = number_at<std::uint32_t>(kUnitsAt);
  const std::size_t last_unit_blocks = kTableAt + kRecordBytes * (units - 1) + 24;
  set(last_unit_blocks, number_at<std::uint32_t>(last_unit_blocks) - 1);
  set(kBlocksAt, number_at<std::uint32_t>(kBlocksAt) - 1);
  seal();
  EXPECT_NE(refusal(), "accepted");
}

TEST_F(PackedTrunkTest, AbsentFileIsNamed) {
  std::filesystem::remove(file());
  const Result<UnitTable> table = open_packed_trunk(folder_.path(), *checkpoint_);
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().code, ErrorCode::kWeights);
}

TEST_F(PackedTrunkTest, LostShardLeavesTheOldFileAndNamesTheShard) {
  std::filesystem::remove(checkpoint_->shards()[1].path);
  const Status status = write_packed_trunk(*checkpoint_, folder_.path(), 7000, PackAs::kRaw, {});
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr(checkpoint_->shards()[1].path.string()));
  EXPECT_EQ(read_text_file(file(), 1 << 30).value(), bytes_);
}

TEST_F(PackedTrunkTest, FolderThatIsAbsentIsAnOutputError) {
  const Status status =
      write_packed_trunk(*checkpoint_, folder_.path() / "absent", 5000, PackAs::kRaw, {});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kOutput);
}

}  // namespace
}  // namespace k3
