// Blocks a trunk service must not send are refused by name; blocks of both encodings are used.
#include "services/compute/trunk_cursor.h"

#include <gmock/gmock.h>

#include <cstring>
#include <deque>
#include <functional>

#include "common/codec/coded_bf16.h"
#include "common/kernels/select.h"

namespace k3::compute::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint8_t kF32 = 0;
constexpr std::uint8_t kBf16 = 1;

// Delivers the blocks it is given.
class ScriptedTrunk : public TrunkReader {
 public:
  Status begin_pass(bool, bool) override { return {}; }
  Result<TrunkBlock> block() override { return blocks.at(0); }
  void done() override {
    const TrunkBlock block = blocks.front();
    blocks.pop_front();
    if (block.ends_unit && spoil) spoil();
  }
  void abandon() override {}
  Result<EmbeddingRows> embedding(std::span<const std::int32_t>) override {
    return EmbeddingRows{};
  }
  std::uint64_t waited_ns() const override { return 0; }

  std::deque<TrunkBlock> blocks;
  std::function<void()> spoil;  // takes the bytes of a unit away
};

// One matrix of six rows of two weights, in groups of two rows.
class TrunkCursorTest : public testing::Test {
 protected:
  TrunkBlock block(std::uint32_t first_row, std::uint32_t rows, std::uint8_t encoding = kF32) {
    const std::size_t row_bytes = encoding == kBf16 ? 4 : 8;
    return {.tensor = 0,
            .first_row = first_row,
            .rows = rows,
            .encoding = encoding,
            .bytes = std::span<const std::byte>(bytes_).first(rows * row_bytes)};
  }

  std::string refusal(std::vector<TrunkBlock> blocks) {
    trunk_.blocks.assign(blocks.begin(), blocks.end());
    cursor_.restart();
    std::vector<float> out(12);
    const Status status = cursor_.read(3, TrunkRole::kMlaKvb, out);
    if (status) return "accepted";
    EXPECT_EQ(status.error().code, ErrorCode::kWeights);
    return status.error().message;
  }

  std::vector<TrunkTensor> order_ = {{.layer = 3,
                                      .role = TrunkRole::kMlaKvb,
                                      .name = "layers.3.kv_b",
                                      .rows = 6,
                                      .cols = 2,
                                      .row_group = 2}};
  std::vector<std::byte> bytes_ = std::vector<std::byte>(64);
  ScriptedTrunk trunk_;
  kernels::Multiplier multiplier_{kernels::reference_table(), 1};
  TrunkCursor cursor_{order_, trunk_, multiplier_};
};

TEST_F(TrunkCursorTest, RefusesBlocksOutOfOrder) {
  TrunkBlock other = block(0, 6);
  other.tensor = 1;
  EXPECT_THAT(refusal({other}), AllOf(HasSubstr("layers.3.kv_b"), HasSubstr("tensor 1")));
  EXPECT_THAT(refusal({block(2, 4)}), HasSubstr("from row 2"));
  EXPECT_THAT(refusal({block(0, 2), block(4, 2)}), HasSubstr("from row 4"));
  EXPECT_THAT(refusal({block(0, 4), block(2, 4)}), HasSubstr("from row 2"));
}

TEST_F(TrunkCursorTest, RefusesRowsThatAreNotThere) {
  EXPECT_THAT(refusal({block(0, 0)}), HasSubstr("0 rows"));
  EXPECT_THAT(refusal({block(0, 8)}), AllOf(HasSubstr("8 rows"), HasSubstr("of 6")));
  EXPECT_THAT(refusal({block(0, 3)}), HasSubstr("groups of 2"));
}

TEST_F(TrunkCursorTest, RefusesWrongSizesAndEncodings) {
  TrunkBlock short_block = block(0, 6);
  short_block.bytes = short_block.bytes.first(47);
  EXPECT_THAT(refusal({short_block}), AllOf(HasSubstr("47 bytes"), HasSubstr("48")));
  EXPECT_THAT(refusal({block(0, 6, 3)}), HasSubstr("encoding 3"));
  EXPECT_THAT(refusal({block(0, 6, 2)}), HasSubstr("not a matrix of products"));
  EXPECT_EQ(refusal({block(0, 6)}), "accepted");
}

TEST_F(TrunkCursorTest, MultipliesCodedRowsAndRefusesThemDamaged) {
  order_[0] = {.layer = 3, .role = TrunkRole::kKdaQ, .name = "q", .rows = 2, .cols = 256};
  std::vector<std::uint16_t> weights(512, 0x3f80);  // 1
  weights[256] = 0xc000;                            // -2
  auto coded = encode_bf16(std::as_bytes(std::span(weights)), 2, 256).value();
  trunk_.blocks = {{.tensor = 0, .first_row = 0, .rows = 2, .encoding = 2, .bytes = coded}};
  const std::vector<float> x(256, 1.0F);
  float y[2];
  ASSERT_TRUE(cursor_.multiply(3, TrunkRole::kKdaQ, x.data(), 256, 1, y, 2));
  EXPECT_THAT(y, ElementsAre(256.0F, 253.0F));
  coded.pop_back();
  trunk_.blocks = {{.tensor = 0, .first_row = 0, .rows = 2, .encoding = 2, .bytes = coded}};
  cursor_.restart();
  const Status damaged = cursor_.multiply(3, TrunkRole::kKdaQ, x.data(), 256, 1, y, 2);
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().code, ErrorCode::kWeights);
  EXPECT_THAT(damaged.error().message, HasSubstr("q from row 0: coded block"));
}

TEST_F(TrunkCursorTest, MultipliesRowsOfBothEncodingsInTheirPlaces) {
  const float rows[] = {1, 2, 3, 4};
  const std::uint16_t bf16_rows[] = {0x3f80, 0x0000, 0x0000, 0xc000};  // 1, 0, 0, -2
  std::memcpy(bytes_.data(), rows, sizeof(rows));
  std::memcpy(bytes_.data() + 16, bf16_rows, sizeof(bf16_rows));
  TrunkBlock second = block(2, 2, kBf16);
  second.bytes = std::span<const std::byte>(bytes_).subspan(16, 8);
  trunk_.blocks = {block(0, 2), second, block(4, 2)};
  const float x[] = {1, 10, -1, 0};
  std::vector<float> y(12);
  ASSERT_TRUE(cursor_.multiply(3, TrunkRole::kMlaKvb, x, 2, 2, y.data(), 6));
  EXPECT_THAT(y, ElementsAre(21, 43, 1, -20, 21, 43, -1, -3, -1, 0, -1, -3));
}

TEST_F(TrunkCursorTest, QueuedProductsAreComputedBeforeTheBytesOfTheirUnitGo) {
  order_ = {{.layer = 0, .role = TrunkRole::kKdaQ, .name = "q", .rows = 2, .cols = 2},
            {.layer = 0, .role = TrunkRole::kKdaK, .name = "k", .rows = 2, .cols = 2},
            {.layer = 0, .role = TrunkRole::kKdaV, .name = "v", .rows = 1, .cols = 2}};
  std::vector<float> unit = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<float> next_unit = {9, 10};
  const std::span<const std::byte> bytes = std::as_bytes(std::span(unit));
  trunk_.blocks = {
      {.tensor = 0, .rows = 2, .bytes = bytes.first(16), .ends_unit = false},
      {.tensor = 1, .rows = 1, .bytes = bytes.subspan(16, 8), .ends_unit = false},
      {.tensor = 1, .first_row = 1, .rows = 1, .bytes = bytes.subspan(24), .ends_unit = true},
      {.tensor = 2, .rows = 1, .bytes = std::as_bytes(std::span(next_unit)), .ends_unit = false}};
  trunk_.spoil = [&unit] { unit.assign(unit.size(), -1.0F); };
  const float x[] = {1, 100};
  float q[2], k[2], v[1];
  ASSERT_TRUE(cursor_.queue(0, TrunkRole::kKdaQ, x, 2, 1, q, 2));
  ASSERT_TRUE(cursor_.queue(0, TrunkRole::kKdaK, x, 2, 1, k, 2));
  ASSERT_TRUE(cursor_.queue(0, TrunkRole::kKdaV, x, 2, 1, v, 1));
  cursor_.complete();
  EXPECT_THAT(q, ElementsAre(201, 403));
  EXPECT_THAT(k, ElementsAre(605, 807));
  EXPECT_THAT(v, ElementsAre(1009));
}

TEST_F(TrunkCursorTest, QueuedProductsKeepTheirOwnInputs) {
  order_ = {{.layer = 0, .role = TrunkRole::kKdaQ, .name = "q", .rows = 1, .cols = 2},
            {.layer = 0, .role = TrunkRole::kKdaK, .name = "k", .rows = 1, .cols = 2}};
  const std::vector<float> rows = {1, 2, 3, 4};
  const std::span<const std::byte> bytes = std::as_bytes(std::span(rows));
  trunk_.blocks = {{.tensor = 0, .rows = 1, .bytes = bytes.first(8), .ends_unit = false},
                   {.tensor = 1, .rows = 1, .bytes = bytes.subspan(8), .ends_unit = false}};
  const float x[] = {1, 0};
  const float other[] = {0, 1};
  float q = 0;
  float k = 0;
  ASSERT_TRUE(cursor_.queue(0, TrunkRole::kKdaQ, x, 2, 1, &q, 1));
  ASSERT_TRUE(cursor_.multiply(0, TrunkRole::kKdaK, other, 2, 1, &k, 1));
  EXPECT_EQ(q, 1);
  EXPECT_EQ(k, 4);
}

}  // namespace
}  // namespace k3::compute::test
