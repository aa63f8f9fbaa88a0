// The expert index: right bytes in any layout, every damage refused.
#include "common/checkpoint/expert_index.h"

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

constexpr std::array<const char*, kExpertParts> kPartNames = {
    "w1.weight_packed", "w1.weight_scale",  "w2.weight_packed",
    "w2.weight_scale",  "w3.weight_packed", "w3.weight_scale"};

// Places in the file, from docs/formats.md.
constexpr std::size_t kHeaderBytes = 112;
constexpr std::size_t kLocationBytes = 16;
constexpr std::size_t kExtentBytes = 24;
constexpr std::size_t kExperts = 3 * 12;

class ExpertIndexTest : public testing::Test {
 protected:
  void write(const test::TinyOptions& options) {
    source_ = test::make_tiny_checkpoint(options);
    test::write_tiny_checkpoint(source_, model_);
    checkpoint_ = Checkpoint::open(model_, {}).value();
  }

  ExpertIndex build(bool checksums) {
    return build_expert_index(*checkpoint_, checksums, {}).value();
  }

  // The slot of an expert as the source's own tensors say.
  std::string wanted_slot(int layer, int expert) {
    std::string slot;
    for (const char* part : kPartNames) {
      slot += source_
                  .at("language_model.model.layers." + std::to_string(layer) +
                      ".block_sparse_moe.experts." + std::to_string(expert) + "." + part)
                  .data;
    }
    return slot;
  }

  void expect_right_bytes(const ExpertIndex& index) {
    ASSERT_EQ(index.locations.size(), kExperts);
    for (int layer = 1; layer < 4; ++layer) {
      for (int expert = 0; expert < 12; ++expert) {
        std::string slot(index.expert_bytes(), '\0');
        for (const ExpertExtent& extent : index.at(layer, expert).extents) {
          const auto& shard = index.shards[extent.shard];
          ASSERT_TRUE(read_exactly(
              open_for_reading(shard).value().get(), extent.offset,
              std::as_writable_bytes(std::span(slot)).subspan(extent.slot_offset, extent.length),
              shard));
        }
        EXPECT_EQ(slot, wanted_slot(layer, expert)) << layer << " " << expert;
      }
    }
  }

  void write_file() {
    ASSERT_TRUE(write_expert_index(build(false), folder_.path()));
    bytes_ = read_text_file(file(), 1 << 30).value();
  }

  std::filesystem::path file() const { return folder_.path() / kExpertIndexFile; }

  template <class Number>
  void set(std::size_t at, Number number) {
    std::memcpy(&bytes_[at], &number, sizeof number);
  }

  void seal() {
    const std::size_t end = bytes_.size() - 8;
    set(end, XXH3_64bits(bytes_.data(), end));
  }

  std::string refusal() {
    std::ofstream(file(), std::ios::binary | std::ios::trunc) << bytes_;
    const Result<ExpertIndex> index = read_expert_index(folder_.path(), *checkpoint_);
    if (index) return "accepted";
    EXPECT_EQ(index.error().code, ErrorCode::kWeights);
    EXPECT_THAT(index.error().message, HasSubstr(kExpertIndexFile));
    return index.error().message;
  }

  test::TempDir folder_;
  std::filesystem::path model_ = folder_.path() / "model";
  test::TinyCheckpoint source_;
  std::optional<Checkpoint> checkpoint_;
  std::string bytes_;
};

TEST_F(ExpertIndexTest, ReleasedLayoutIsOneReadAnExpert) {
  write({});
  const ExpertIndex index = build(false);
  for (const ExpertLocation& location : index.locations) {
    EXPECT_EQ(location.extents.size(), 1u);
    EXPECT_FALSE(location.checksum);
  }
  expect_right_bytes(index);  // stored in string order: 0, 1, 10, 11, 2, ...
}

TEST_F(ExpertIndexTest, ScatteredPartsAreReadFromWhereTheyLie) {
  write({.scattered = true});
  const ExpertIndex index = build(false);
  std::size_t most = 0;
  for (const ExpertLocation& location : index.locations) {
    most = std::max(most, location.extents.size());
  }
  EXPECT_GT(most, 3u);
  expect_right_bytes(index);
}

TEST_F(ExpertIndexTest, WrittenIndexReadsBackEqual) {
  for (const bool scattered : {false, true}) {
    write({.scattered = scattered});
    const ExpertIndex index = build(true);
    ASSERT_TRUE(write_expert_index(index, folder_.path()));
    const ExpertIndex back = read_expert_index(folder_.path(), *checkpoint_).value();
    EXPECT_EQ(back.fingerprint, index.fingerprint);
    EXPECT_EQ(back.part_bytes, index.part_bytes);
    EXPECT_EQ(back.shards, index.shards);
    for (std::size_t i = 0; i < index.locations.size(); ++i) {
      EXPECT_EQ(back.locations[i].checksum, index.locations[i].checksum);
    }
    expect_right_bytes(back);
    std::filesystem::remove_all(model_);
  }
}

TEST_F(ExpertIndexTest, ChecksumsAreThoseOfTheSlots) {
  write({.scattered = true});
  const ExpertIndex index = build(true);
  for (int expert = 0; expert < 12; ++expert) {
    const std::string slot = wanted_slot(2, expert);
    EXPECT_EQ(index.at(2, expert).checksum, XXH3_64bits(slot.data(), slot.size()));
  }
}

TEST_F(ExpertIndexTest, ChecksumsReportProgressAndLostShards) {
  write({});
  std::uint64_t last = 0;
  ASSERT_TRUE(build_expert_index(*checkpoint_, true, [&](std::uint64_t done, std::uint64_t total) {
    last = done;
    EXPECT_EQ(total, kExperts);
  }));
  EXPECT_EQ(last, kExperts);
  const auto& shard = checkpoint_->shards()[checkpoint_->expert(2, 0)[0].shard].path;
  std::filesystem::resize_file(shard, 100);
  const Result<ExpertIndex> index = build_expert_index(*checkpoint_, true, {});
  ASSERT_FALSE(index);
  EXPECT_EQ(index.error().code, ErrorCode::kWeights);
  EXPECT_THAT(index.error().message, HasSubstr(shard.string()));
}

TEST_F(ExpertIndexTest, ModelWithoutExpertsHasAnEmptyIndex) {
  write({});
  checkpoint_ = Checkpoint::open(model_, {.layers = 1}).value();
  ASSERT_TRUE(write_expert_index(build(true), folder_.path()));
  EXPECT_TRUE(read_expert_index(folder_.path(), *checkpoint_).value().locations.empty());
}

TEST_F(ExpertIndexTest, CutOffAnywhereIsRefused) {
  write({});
  write_file();
  const std::string whole = bytes_;
  for (std::size_t bytes = 0; bytes < whole.size(); bytes += 41) {
    bytes_ = whole.substr(0, bytes);
    EXPECT_NE(refusal(), "accepted") << bytes;
  }
  bytes_ = whole.substr(0, whole.size() - 1);
  EXPECT_NE(refusal(), "accepted");
}

TEST_F(ExpertIndexTest, AnyFlippedByteIsRefused) {
  write({});
  write_file();
  for (std::size_t at = 0; at < bytes_.size(); at += 17) {
    bytes_[at] ^= 1;
    EXPECT_NE(refusal(), "accepted") << at;
    bytes_[at] ^= 1;
  }
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(ExpertIndexTest, AnotherCheckpointIsRefusedWithBothFingerprints) {
  write({});
  write_file();
  const std::string made_from = checkpoint_->fingerprint();
  std::filesystem::remove_all(model_);
  write({.seed = 2});
  EXPECT_THAT(refusal(), AllOf(HasSubstr(made_from), HasSubstr(checkpoint_->fingerprint())));
}

TEST_F(ExpertIndexTest, SealedNonsenseIsRefusedByItsOwnCheck) {
  write({});
  write_file();
  const std::size_t location = kHeaderBytes + 13 * kLocationBytes;  // layer 2 expert 1
  const std::size_t extent = kHeaderBytes + kExperts * kLocationBytes + 13 * kExtentBytes;
  const std::size_t name = kHeaderBytes + kExperts * (kLocationBytes + kExtentBytes) + 4;
  struct Case {
    std::size_t at;
    std::uint64_t value;
    bool wide;
    const char* named;
  };
  const std::vector<Case> cases = {
      {8, 2, false, "version 2"},
      {20, 99, false, "99"},              // experts
      {24, 1'000'000, false, "cut off"},  // shards
      {28, 0xffffffff, false, "cut off"},
      {32, 7, true, "another size"},
      {location + 8, 0, false, "layer 2 expert 1: 0 extents"},
      {location + 8, 7, false, "layer 2 expert 1: 7 extents"},
      {location + 8, 2, false, "layer 2 expert 1"},
      {extent, ~0ull, true, "layer 2 expert 1"},
      {extent, 1'000'000'000, true, "which has"},
      {extent + 8, 0, true, "0 bytes"},
      {extent + 8, ~0ull, true, "of a slot"},
      {extent + 8, 8, true, "extents hold 8 bytes"},
      {extent + 16, 1000, false, "shard number 1000"},
      {name, 0x7a7a7a7a, false, "no such file"},
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

TEST_F(ExpertIndexTest, AbsentFileIsNamed) {
  write({});
  const Result<ExpertIndex> index = read_expert_index(folder_.path() / "absent", *checkpoint_);
  ASSERT_FALSE(index);
  EXPECT_EQ(index.error().code, ErrorCode::kWeights);
}

TEST_F(ExpertIndexTest, FolderThatIsAbsentIsAnOutputError) {
  write({});
  const Status status = write_expert_index(build(false), folder_.path() / "absent");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kOutput);
}

TEST_F(ExpertIndexTest, OutOfRangeExpertIsABug) {
  write({});
  const ExpertIndex index = build(false);
  EXPECT_DEATH(index.at(0, 0), "layer 0 expert 0");
  EXPECT_DEATH(index.at(1, 12), "layer 1 expert 12");
}

}  // namespace
}  // namespace k3
