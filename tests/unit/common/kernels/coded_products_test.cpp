// Products straight from coded bf16: the bits are those of the product over the decoded matrix.
#include <cstring>
#include <limits>

#include "common/codec/coded_bf16.h"
#include "tests/unit/common/kernels/tables_under_test.h"

namespace k3::kernels {
namespace {

// A matrix as bf16 and coded, and inputs off any vector boundary.
struct CodedProblem {
  std::size_t rows, cols, batch;
  std::vector<std::uint16_t> weights;
  std::vector<std::byte> block;
  std::vector<float> x;  // from element 1, stride cols + 3

  CodedBf16 coded() const { return open_coded_bf16(block, rows, cols).value(); }
  std::size_t x_stride() const { return cols + 3; }
  std::size_t y_stride() const { return rows + 5; }
};

// Every `rare`-th weight, in all rows, has an exponent of its own, far from the others.
CodedProblem make_problem(std::size_t rows, std::size_t cols, std::size_t batch, std::size_t rare) {
  CodedProblem problem{rows, cols, batch, {}, {}, {}};
  const std::vector<float> values = random_floats(rows * cols, 7, 0.05F);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = i % rare == rare - 1 ? values[i] * 1e-20F : values[i];
    problem.weights.push_back(
        static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
  }
  problem.block = encode_bf16(std::as_bytes(std::span(problem.weights)), rows, cols).value();
  problem.x = random_floats(1 + batch * problem.x_stride(), 8);
  return problem;
}

// Rows first..first + rows - 1 by the coded product and, over bf16, by the reference.
void expect_the_bits_of_bf16(const KernelTable& table, const CodedProblem& problem,
                             std::size_t first, std::size_t rows) {
  std::vector<float> want(problem.batch * problem.y_stride(), 1.0F);
  std::vector<float> got = want;
  const float* const x = problem.x.data() + 1;
  const auto* const weights =
      reinterpret_cast<const std::uint8_t*>(problem.weights.data() + first * problem.cols);
  reference_table().matmul_bf16(weights, rows, problem.cols, x, problem.x_stride(), problem.batch,
                                want.data(), problem.y_stride());
  table.matmul_coded(problem.coded(), first, rows, problem.cols, x, problem.x_stride(),
                     problem.batch, got.data(), problem.y_stride());
  EXPECT_TRUE(same_bits(got, want))
      << rows << " of " << problem.rows << "x" << problem.cols << " batch " << problem.batch;
}

class CodedProducts : public EveryTable {
 protected:
  void expect_all_rows(const CodedProblem& problem) const {
    expect_the_bits_of_bf16(table(), problem, 0, problem.rows);
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, CodedProducts, testing::ValuesIn(all_tables()), candidate_name);

TEST(CodedProductsOfFastTables, RunCodeOfTheirOwn) {
  for (const Candidate& fast : fast_tables()) {
    EXPECT_NE(fast.table->matmul_coded, reference_table().matmul_coded) << fast.label;
  }
}

TEST_P(CodedProducts, AtModelWidthsAndBatches) {
  for (const std::size_t cols : {12288U, 7168U, 3584U, 1536U, 128U}) {
    for (const std::size_t batch : {1U, 2U, 3U, 4U, 7U}) {
      expect_all_rows(make_problem(11, cols, batch, 3001));
    }
  }
}

TEST_P(CodedProducts, WithColumnsThatFillNoGroup) {
  for (const std::size_t cols : {129U, 143U, 144U, 145U, 255U, 257U, 400U, 639U}) {
    for (const std::size_t batch : {1U, 5U}) expect_all_rows(make_problem(9, cols, batch, 101));
  }
}

TEST_P(CodedProducts, WithEscapesInEveryPlace) {
  for (const std::size_t rare : {17U, 31U, 64U, 127U, 128U, 129U}) {
    expect_all_rows(make_problem(13, 512, 3, rare));
    expect_all_rows(make_problem(13, 1024, 8, rare));
  }
}

TEST_P(CodedProducts, InLargeBatches) {
  for (const std::size_t batch : {5U, 6U, 17U, 33U}) {
    for (const std::size_t cols : {130U, 512U, 639U, 1152U}) {
      expect_all_rows(make_problem(21, cols, batch, 61));
    }
  }
}

TEST_P(CodedProducts, OfAnyRunOfRows) {
  const CodedProblem problem = make_problem(19, 384, 2, 97);
  for (std::size_t first = 0; first < problem.rows; ++first) {
    for (std::size_t rows = 0; first + rows <= problem.rows; rows += 3) {
      expect_the_bits_of_bf16(table(), problem, first, rows);
    }
  }
}

TEST_P(CodedProducts, WithInfinitiesNansAndSubnormals) {
  CodedProblem problem = make_problem(8, 384, 3, 89);
  const std::uint16_t special[] = {0x7f80, 0xff80, 0x7fc1, 0x0001, 0x8001, 0x8000};
  for (std::size_t i = 0; i < std::size(special); ++i) problem.weights[i * 401] = special[i];
  problem.block =
      encode_bf16(std::as_bytes(std::span(problem.weights)), problem.rows, problem.cols).value();
  expect_all_rows(problem);
  problem.x[5] = std::numeric_limits<float>::infinity();
  expect_all_rows(problem);
}

}  // namespace
}  // namespace k3::kernels
