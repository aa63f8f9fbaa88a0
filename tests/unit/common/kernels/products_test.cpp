// Matrix products: every table against the reference bit for bit, and the reference against
// independent arithmetic.
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/unit/common/kernels/tables_under_test.h"
#include "tests/unit/support/reference_data.h"

namespace k3::kernels {
namespace {

enum class Format { kF32, kBf16, kMxfp4 };
constexpr Format kFormats[] = {Format::kF32, Format::kBf16, Format::kMxfp4};

constexpr float kUntouched = 12345.0F;

struct Shape {
  std::size_t rows, cols, batch;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.rows << "x" << shape.cols << " batch " << shape.batch;
}

// A product's operands, laid out awkwardly: weights at an odd address, inputs and outputs off any
// vector boundary, strides longer than the rows.
struct Problem {
  Format format;
  Shape shape;
  std::vector<std::uint8_t> weights;  // from byte 1
  std::vector<std::uint8_t> scales;   // from byte 1
  std::vector<float> x;               // from element 1, stride cols + 3

  std::size_t x_stride() const { return shape.cols + 3; }
  std::size_t y_stride() const { return shape.rows + 5; }
};

Problem make_problem(Format format, Shape shape, std::uint32_t seed) {
  Problem problem{format, shape, {}, {}, {}};
  const std::size_t count = shape.rows * shape.cols;
  const std::vector<float> values = random_floats(count, seed, 0.05F);
  if (format == Format::kMxfp4) {
    problem.weights = random_bytes(1 + count / 2, seed);
    problem.scales = random_bytes(1 + count / 32, seed + 1);
    for (std::uint8_t& scale : problem.scales) {
      scale = static_cast<std::uint8_t>(110 + scale % 20);
    }
  } else {
    const std::size_t size = format == Format::kF32 ? 4 : 2;
    problem.weights.resize(1 + count * size);
    for (std::size_t i = 0; i < count; ++i) {
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(&values[i]);
      std::memcpy(&problem.weights[1 + i * size], bytes + 4 - size, size);
    }
  }
  problem.x = random_floats(1 + shape.batch * problem.x_stride(), seed + 2);
  return problem;
}

// Batch rows first..first + batch - 1; all of y, gaps included.
std::vector<float> run(const KernelTable& table, const Problem& problem, std::size_t first,
                       std::size_t batch) {
  const auto [rows, cols, unused] = problem.shape;
  std::vector<float> y(1 + batch * problem.y_stride(), kUntouched);
  const float* const x = problem.x.data() + 1 + first * problem.x_stride();
  const std::uint8_t* const w = problem.weights.data() + 1;
  switch (problem.format) {
    case Format::kF32:
      table.matmul_f32(w, rows, cols, x, problem.x_stride(), batch, y.data() + 1,
                       problem.y_stride());
      break;
    case Format::kBf16:
      table.matmul_bf16(w, rows, cols, x, problem.x_stride(), batch, y.data() + 1,
                        problem.y_stride());
      break;
    case Format::kMxfp4:
      table.matmul_mxfp4(w, problem.scales.data() + 1, rows, cols, x, problem.x_stride(), batch,
                         y.data() + 1, problem.y_stride());
      break;
  }
  return y;
}

std::vector<float> run(const KernelTable& table, const Problem& problem) {
  return run(table, problem, 0, problem.shape.batch);
}

class Products : public EveryTable {
 protected:
  void expect_reference_bits(const Problem& problem) const {
    EXPECT_TRUE(same_bits(run(table(), problem), run(reference_table(), problem)))
        << "format " << static_cast<int>(problem.format) << " " << problem.shape;
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, Products, testing::ValuesIn(fast_tables()), candidate_name);

TEST_P(Products, RunCodeOfTheirOwn) {
  const KernelTable& reference = reference_table();
  EXPECT_EQ(GetParam().label.rfind(table().name, 0), 0U) << table().name;
  EXPECT_NE(table().matmul_f32, reference.matmul_f32);
  EXPECT_NE(table().matmul_bf16, reference.matmul_bf16);
  EXPECT_NE(table().matmul_mxfp4, reference.matmul_mxfp4);
  EXPECT_NE(table().dot, reference.dot);
}

TEST_P(Products, MatchReferenceAtModelWidths) {
  for (const std::size_t cols : {7168U, 3584U, 3072U, 1536U, 512U}) {
    for (const std::size_t batch : {1U, 2U, 3U, 7U, 32U}) {
      const std::size_t rows = batch == 1 ? 37 : 5;
      for (const Format format : kFormats) {
        expect_reference_bits(make_problem(format, {rows, cols, batch}, 7));
      }
    }
  }
}

TEST_P(Products, MatchReferenceAtEveryTail) {
  for (std::size_t cols = 1; cols <= 70; ++cols) {
    for (const std::size_t batch : {1U, 2U, 3U, 4U, 7U}) {
      const Shape shape{1 + cols % 9, cols, batch};
      expect_reference_bits(make_problem(Format::kF32, shape, 11));
      expect_reference_bits(make_problem(Format::kBf16, shape, 12));
    }
  }
  for (std::size_t rows = 0; rows <= 17; ++rows) {
    for (const Format format : kFormats)
      expect_reference_bits(make_problem(format, {rows, 96, 5}, 13));
  }
}

// Larger batches take weights by panels: whole and broken ones, in rows, columns and batch.
TEST_P(Products, MatchReferenceInLargeBatches) {
  for (const std::size_t batch : {16U, 17U, 31U, 32U, 33U, 67U}) {
    for (const std::size_t rows : {1U, 7U, 16U, 21U}) {
      for (const std::size_t cols : {32U, 512U, 544U, 1056U}) {
        for (const Format format : kFormats) {
          expect_reference_bits(make_problem(format, {rows, cols, batch}, 14));
        }
      }
      for (const std::size_t cols : {5U, 519U, 1039U}) {
        expect_reference_bits(make_problem(Format::kF32, {rows, cols, batch}, 15));
        expect_reference_bits(make_problem(Format::kBf16, {rows, cols, batch}, 16));
      }
    }
  }
}

TEST_P(Products, KeepTheSignOfZeroInTails) {
  // Products that underflow to -0 leave -0 in a lane; a lane without element must not turn it.
  for (std::size_t cols = 16; cols <= 33; ++cols) {
    Problem problem = make_problem(Format::kF32, {9, cols, 3}, 1);
    const float tiny = -1e-30F;
    for (std::size_t i = 0; i < 9 * cols; ++i) {
      std::memcpy(&problem.weights[1 + 4 * i], &tiny, sizeof tiny);
    }
    problem.x.assign(problem.x.size(), 1e-30F);
    expect_reference_bits(problem);
    EXPECT_TRUE(std::signbit(run(reference_table(), problem)[1]));
  }
}

TEST_P(Products, MatchReferenceOnInfinitiesNansAndSubnormals) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float special[] = {kInfinity, -kInfinity, NAN, 0.0F, -0.0F, 1e-42F, -1e-42F, 3e38F, 1.0F};
  for (const Format format : kFormats) {
    for (std::size_t s = 0; s < std::size(special); ++s) {
      Problem problem = make_problem(format, {9, 96, 3}, 20);
      for (std::size_t i = s; i < problem.x.size(); i += 41) problem.x[i] = special[s];
      expect_reference_bits(problem);
    }
    Problem problem = make_problem(format, {64, 224, 3}, 21);
    problem.weights = random_bytes(problem.weights.size(), 22);
    problem.scales = random_bytes(problem.scales.size(), 23);
    expect_reference_bits(problem);
  }
}

TEST_P(Products, DotMatchesReference) {
  for (std::size_t n = 0; n <= 600; n += n < 70 ? 1 : 53) {
    const std::vector<float> a = random_floats(n + 1, 1);
    const std::vector<float> b = random_floats(n + 1, 2);
    EXPECT_TRUE(same_bits(table().dot(a.data() + 1, b.data() + 1, n),
                          reference_table().dot(a.data() + 1, b.data() + 1, n)))
        << n;
  }
}

class ProductsTruth : public EveryTable {};

INSTANTIATE_TEST_SUITE_P(Kernels, ProductsTruth, testing::ValuesIn(all_tables()), candidate_name);

TEST_P(ProductsTruth, ARowDoesNotDependOnItsBatch) {
  for (const Format format : kFormats) {
    const Problem problem = make_problem(format, {11, 224, 9}, 30);
    const std::vector<float> together = run(table(), problem);
    for (std::size_t b = 0; b < problem.shape.batch; ++b) {
      const std::vector<float> alone = run(table(), problem, b, 1);
      for (std::size_t r = 0; r < problem.shape.rows; ++r) {
        EXPECT_TRUE(same_bits(together[1 + b * problem.y_stride() + r], alone[1 + r]));
      }
    }
  }
}

TEST_P(ProductsTruth, WriteOnlyTheirResults) {
  const Problem problem = make_problem(Format::kBf16, {6, 20, 4}, 31);
  const std::vector<float> y = run(table(), problem);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const bool result = i > 0 && (i - 1) % problem.y_stride() < problem.shape.rows;
    EXPECT_EQ(y[i] == kUntouched, !result) << i;
  }
}

TEST_P(ProductsTruth, DotIsCloseToDoublePrecision) {
  for (const std::size_t n : {16U, 70U, 512U, 7168U, 33792U}) {
    const std::vector<float> a = random_floats(n, 40);
    const std::vector<float> b = random_floats(n, 41);
    double exact = 0;
    double magnitude = 0;
    for (std::size_t i = 0; i < n; ++i) {
      exact += static_cast<double>(a[i]) * b[i];
      magnitude += std::abs(static_cast<double>(a[i]) * b[i]);
    }
    // Each element passes at most n / 16 + 1 roundings in its lane and 4 in the tree.
    const double bound = magnitude * (static_cast<double>(n) / 16 + 5) * 0x1p-24;
    EXPECT_NEAR(table().dot(a.data(), b.data(), n), exact, bound) << n;
  }
}

TEST_P(ProductsTruth, LanesFollowTheContract) {
  // 2^24 + 1 rounds to 2^24, so the result shows which elements met in a lane before others.
  std::vector<float> a(48, 0.0F);
  const std::vector<float> ones(48, 1.0F);
  a[0] = 0x1p24F;
  a[16] = 1.0F;  // same lane: lost
  a[32] = 1.0F;  // same lane: lost
  EXPECT_EQ(table().dot(a.data(), ones.data(), 48), 0x1p24F);
  a[16] = a[32] = 0.0F;
  a[1] = a[17] = 1.0F;  // meet in lane 1 first: kept
  EXPECT_EQ(table().dot(a.data(), ones.data(), 48), 0x1p24F + 2.0F);
  a[1] = a[17] = 0.0F;
  a[8] = a[4] = 1.0F;  // each alone meets lane 0: lost
  EXPECT_EQ(table().dot(a.data(), ones.data(), 48), 0x1p24F);
  a[4] = 0.0F;
  a[12] = a[8] = 0.0F;
  a[4] = a[12] = 1.0F;  // lane 12 meets lane 4 before lane 0: kept
  EXPECT_EQ(table().dot(a.data(), ones.data(), 48), 0x1p24F + 2.0F);
}

TEST_P(ProductsTruth, EveryE8m0ScaleTimesEveryNibble) {
  constexpr double kE2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  constexpr std::size_t kRows = 256 * 16;
  std::vector<std::uint8_t> packed(kRows * 16);
  std::vector<std::uint8_t> scales(kRows);
  for (std::size_t r = 0; r < kRows; ++r) {
    const std::size_t column = r * 7 % 32;
    packed[r * 16 + column / 2] = static_cast<std::uint8_t>((r % 16) << (column % 2 * 4));
    scales[r] = static_cast<std::uint8_t>(r / 16);
  }
  const std::vector<float> ones(32, 1.0F);
  std::vector<float> y(kRows);
  table().matmul_mxfp4(packed.data(), scales.data(), kRows, 32, ones.data(), 32, 1, y.data(),
                       kRows);
  for (std::size_t r = 0; r < kRows; ++r) {
    const int scale = static_cast<int>(r / 16);
    const double magnitude = scale == 255 ? 0.0 : std::ldexp(kE2m1[r % 8], scale - 127);
    const double value = r % 16 < 8 ? magnitude : -magnitude;
    EXPECT_EQ(y[r], static_cast<float>(value)) << "scale " << scale << " nibble " << r % 16;
  }
}

TEST_P(ProductsTruth, DecodesReleasedMxfp4Exactly) {
  K3_REFERENCE_OR_SKIP(dir);
  std::ifstream file(dir / "mxfp4.json");
  const nlohmann::json json = nlohmann::json::parse(file);
  const auto packed = json.at("packed").at("data").get<std::vector<std::uint8_t>>();
  const auto scales = json.at("scales").at("data").get<std::vector<std::uint8_t>>();
  const auto expected = json.at("expected").at("data").get<std::vector<float>>();
  ASSERT_EQ(expected.size(), 64U * 3584U);

  // Each group of 32 is a row of its own, and 32 one-hot inputs read its columns.
  const std::size_t groups = scales.size();
  std::vector<float> one_hot(32 * 32, 0.0F);
  for (std::size_t i = 0; i < 32; ++i) one_hot[i * 32 + i] = 1.0F;
  std::vector<float> y(32 * groups);
  table().matmul_mxfp4(packed.data(), scales.data(), groups, 32, one_hot.data(), 32, 32, y.data(),
                       groups);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(y[i % 32 * groups + i / 32], expected[i])
        << "row " << i / 3584 << " column " << i % 3584;
  }
}

}  // namespace
}  // namespace k3::kernels
