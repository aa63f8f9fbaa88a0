// What is coded comes back bit for bit, whatever it was; what would not shrink is not coded.
#include "common/codec/coded_bf16.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace k3 {
namespace {

using Values = std::vector<std::uint16_t>;

std::span<const std::byte> bytes_of(const Values& values) {
  return std::as_bytes(std::span(values));
}

// Normally distributed around 0, as trained weights are, rounded to bf16 by cutting.
Values gaussian(std::size_t count, float deviation, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  Values values(count);
  for (std::uint16_t& value : values) {
    const float drawn = normal(generator);
    std::uint32_t bits;
    std::memcpy(&bits, &drawn, sizeof bits);
    value = static_cast<std::uint16_t>(bits >> 16);
  }
  return values;
}

Values decoded(std::span<const std::byte> block, std::size_t rows, std::size_t cols) {
  const Result<CodedBf16> coded = open_coded_bf16(block, rows, cols);
  EXPECT_TRUE(coded) << coded.error().message;
  Values values(rows * cols);
  for (std::size_t r = 0; coded && r < rows; ++r) {
    decode_bf16_row(*coded, r, cols, values.data() + r * cols);
  }
  return values;
}

void expect_exact(const Values& values, std::size_t rows, std::size_t cols) {
  const auto block = encode_bf16(bytes_of(values), rows, cols);
  ASSERT_TRUE(block);
  EXPECT_LT(block->size(), values.size() * 2);
  EXPECT_EQ(decoded(*block, rows, cols), values);
}

TEST(CodedBf16, ThreadsChangeNoByte) {
  constexpr std::size_t kRows = 37;
  constexpr std::size_t kCols = 1024 + 5;
  Values values = gaussian(kRows * kCols, 0.02F, 5);
  for (std::size_t i = 0; i < values.size(); i += 301) values[i] = static_cast<std::uint16_t>(i);
  const auto alone = encode_bf16(bytes_of(values), kRows, kCols);
  ASSERT_TRUE(alone);
  for (const unsigned threads : {0u, 2u, 3u, 64u}) {
    EXPECT_EQ(encode_bf16(bytes_of(values), kRows, kCols, threads), alone) << threads;
  }
}

TEST(CodedBf16, KeepsEveryValue) {
  // Mostly one exponent, so that the rest, all 65,536 values, fits in as escapes.
  constexpr std::size_t kCols = 4096;
  constexpr std::size_t kRows = 256;
  Values values(kRows * kCols, 0x3f80);
  for (std::size_t i = 0; i < 65536; ++i) values[i * 13] = static_cast<std::uint16_t>(i);
  expect_exact(values, kRows, kCols);
}

TEST(CodedBf16, KeepsInfinitiesNansAndZerosWithTheirSignsAndPayloads) {
  Values values = gaussian(8 * 256, 0.02F, 1);
  const Values special = {0x0000, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0xffc1, 0x7f81, 0x0001, 0x807f};
  for (std::size_t i = 0; i < special.size(); ++i) values[i * 97] = special[i];
  expect_exact(values, 8, 256);
}

TEST(CodedBf16, KeepsColumnsThatFillNoGroup) {
  for (const std::size_t cols : {128, 129, 200, 255, 256, 300, 1000}) {
    expect_exact(gaussian(16 * cols, 0.5F, static_cast<std::uint32_t>(cols)), 16, cols);
  }
}

TEST(CodedBf16, KeepsEscapesAtTheEdgesOfGroupsAndRows) {
  Values values(4 * 384, 0x3f00);
  for (std::size_t exponent = 0; exponent < 14; ++exponent) {
    values[3 * 384 + 2 * exponent] = static_cast<std::uint16_t>((exponent + 1) << 7);
    values[3 * 384 + 2 * exponent + 1] = static_cast<std::uint16_t>((exponent + 1) << 7);
  }
  for (const std::size_t at : {0, 15, 16, 127, 128, 383}) {
    values[at] = 0x7f7f;
    values[384 + at] = 0xc000;
  }
  expect_exact(values, 4, 384);
}

TEST(CodedBf16, RandomMatrices) {
  std::mt19937 generator(5);
  for (int round = 0; round < 50; ++round) {
    const std::size_t rows = 1 + generator() % 20;
    const std::size_t cols = 128 + generator() % 600;
    expect_exact(gaussian(rows * cols, std::ldexp(1.0F, static_cast<int>(generator() % 40) - 20),
                          generator()),
                 rows, cols);
  }
}

TEST(CodedBf16, LeavesAloneWhatWouldNotShrink) {
  Values all(2 * 4096);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i * 7919);
  EXPECT_FALSE(encode_bf16(bytes_of(all), 2, 4096));  // every exponent alike: most are escapes
  const Values narrow = gaussian(100 * 127, 0.02F, 1);
  EXPECT_FALSE(encode_bf16(bytes_of(narrow), 100, 127));         // no whole group
  EXPECT_FALSE(encode_bf16(bytes_of(Values(70000)), 1, 70000));  // columns beyond 16 bits
}

TEST(CodedBf16, GaussianWeightsTakeLessThan0752) {
  for (const std::size_t cols : {1536, 7168, 12288}) {
    const Values values = gaussian(256 * cols, 0.02F, 3);
    const auto block = encode_bf16(bytes_of(values), 256, cols);
    ASSERT_TRUE(block);
    EXPECT_LT(static_cast<double>(block->size()) / (2.0 * static_cast<double>(values.size())),
              0.752)
        << cols;
  }
}

class DamagedBlock : public testing::Test {
 protected:
  static constexpr std::size_t kRows = 8;
  static constexpr std::size_t kCols = 256;
  // After the header of 64 bytes and eight rows of two groups.
  static constexpr std::size_t kFirstEscapeAt = 64 + kRows * 2 * 192;
  static constexpr std::size_t kColumnsAt = kFirstEscapeAt + (kRows + 1) * 4;

  DamagedBlock() {
    Values values(kRows * kCols, 0x3f80);
    for (std::size_t e = 0; e < 40; ++e) {
      values[e * 50] = static_cast<std::uint16_t>((e + 1) << 7);
    }
    block_ = *encode_bf16(bytes_of(values), kRows, kCols);
  }

  template <class Number>
  void set(std::size_t at, Number number) {
    std::memcpy(block_.data() + at, &number, sizeof number);
  }
  std::string refusal() const {
    const auto coded = open_coded_bf16(block_, kRows, kCols);
    if (coded) return "accepted";
    EXPECT_EQ(coded.error().code, ErrorCode::kWeights);
    return coded.error().message;
  }

  std::vector<std::byte> block_;
};

TEST_F(DamagedBlock, IsRefused) {
  EXPECT_EQ(refusal(), "accepted");
  const std::vector<std::byte> whole = block_;
  block_.pop_back();
  EXPECT_THAT(refusal(), testing::HasSubstr("bytes for 8 x 256"));
  block_.clear();
  EXPECT_THAT(refusal(), testing::HasSubstr("0 bytes"));
  block_ = whole;
  set<std::uint64_t>(16, ~std::uint64_t{0});
  EXPECT_THAT(refusal(), testing::HasSubstr("escapes"));
  block_ = whole;
  set<std::uint8_t>(15, 3);
  EXPECT_THAT(refusal(), testing::HasSubstr("escape code"));
  block_ = whole;
  set<std::uint32_t>(kFirstEscapeAt + 4, 1000);
  EXPECT_THAT(refusal(), testing::HasSubstr("row 0"));
  block_ = whole;
  set<std::uint16_t>(kColumnsAt, 256);
  EXPECT_THAT(refusal(), testing::HasSubstr("column 256 of 256"));
}

}  // namespace
}  // namespace k3
