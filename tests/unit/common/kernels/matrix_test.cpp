// Products over threads: the bits of a single call to the table, whatever the team.
#include "common/kernels/matrix.h"

#include <atomic>

#include "common/codec/coded_bf16.h"
#include "tests/unit/common/kernels/tables_under_test.h"

namespace k3::kernels {
namespace {

// Bytes for any format: as floats and bf16 their exponents are moderate.
std::vector<std::uint8_t> weight_bytes(std::size_t n) {
  std::vector<std::uint8_t> bytes = random_bytes(n, 1);
  for (std::size_t i = 1; i < n; i += 2)
    bytes[i] = static_cast<std::uint8_t>(bytes[i] % 2 * 128 + 60);
  return bytes;
}

std::vector<float> one_call(const KernelTable& t, const Matrix& w, const std::vector<float>& x,
                            std::size_t batch) {
  std::vector<float> y(batch * w.rows);
  switch (w.format) {
    case WeightFormat::kCodedBf16:
      t.matmul_coded(w.coded, 0, w.rows, w.cols, x.data(), w.cols, batch, y.data(), w.rows);
      break;
    case WeightFormat::kF32:
      t.matmul_f32(w.data, w.rows, w.cols, x.data(), w.cols, batch, y.data(), w.rows);
      break;
    case WeightFormat::kBf16:
      t.matmul_bf16(w.data, w.rows, w.cols, x.data(), w.cols, batch, y.data(), w.rows);
      break;
    case WeightFormat::kMxfp4:
      t.matmul_mxfp4(w.data, w.scales, w.rows, w.cols, x.data(), w.cols, batch, y.data(), w.rows);
      break;
  }
  return y;
}

TEST(Matrix, RowBytes) {
  EXPECT_EQ((Matrix{WeightFormat::kF32, nullptr, nullptr, 3, 96}.row_bytes()), 384U);
  EXPECT_EQ((Matrix{WeightFormat::kBf16, nullptr, nullptr, 3, 96}.row_bytes()), 192U);
  EXPECT_EQ((Matrix{WeightFormat::kMxfp4, nullptr, nullptr, 3, 96}.row_bytes()), 48U);
}

TEST(Multiplier, BitsDoNotDependOnThreads) {
  const KernelTable& table = *supported_tables().front();
  for (const WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kMxfp4}) {
    // One product that is too small for a team, one of many blocks with a ragged last one.
    for (const std::size_t rows : {5U, 1003U}) {
      Matrix w{format, nullptr, nullptr, rows, 736};
      const std::vector<std::uint8_t> data = weight_bytes(rows * w.row_bytes());
      std::vector<std::uint8_t> scales = random_bytes(rows * w.cols / 32, 2);
      for (std::uint8_t& scale : scales) scale = static_cast<std::uint8_t>(120 + scale % 10);
      w.data = data.data();
      w.scales = scales.data();
      for (const std::size_t batch : {1U, 4U}) {
        const std::vector<float> x = random_floats(batch * w.cols, 3);
        const std::vector<float> want = one_call(table, w, x, batch);
        for (const int threads : {1, 2, 3, 8}) {
          std::vector<float> y(batch * rows, NAN);
          Multiplier(table, threads).multiply(w, x.data(), w.cols, batch, y.data(), rows);
          EXPECT_TRUE(same_bits(y, want)) << threads << " threads, batch " << batch;
        }
      }
    }
  }
}

TEST(Multiplier, ProductsOfOneInputAreEachAsIfAlone) {
  const KernelTable& table = *supported_tables().front();
  constexpr std::size_t kBatch = 3;
  const std::vector<std::uint8_t> data = weight_bytes(500 * 736 * 4);
  const Matrix matrices[] = {{WeightFormat::kBf16, data.data(), nullptr, 500, 736},
                             {WeightFormat::kF32, data.data(), nullptr, 7, 736},
                             {WeightFormat::kBf16, data.data() + 64, nullptr, 0, 736},
                             {WeightFormat::kBf16, data.data() + 128, nullptr, 129, 736}};
  const std::vector<float> x = random_floats(kBatch * 736, 3);
  for (const int threads : {1, 2, 5}) {
    std::vector<std::vector<float>> results;
    std::vector<Product> products;
    for (const Matrix& w : matrices) {
      results.emplace_back(kBatch * w.rows, NAN);
      products.push_back({w, results.back().data(), w.rows});
    }
    Multiplier(table, threads).multiply(products, x.data(), 736, kBatch);
    for (std::size_t i = 0; i < products.size(); ++i) {
      EXPECT_TRUE(same_bits(results[i], one_call(table, matrices[i], x, kBatch)))
          << "product " << i << ", " << threads << " threads";
    }
  }
}

TEST(Multiplier, BitsOfACodedMatrixDoNotDependOnThreads) {
  const KernelTable& table = *supported_tables().front();
  const std::vector<float> values = random_floats(1003 * 768, 5, 0.05F);
  std::vector<std::uint16_t> weights;
  for (const float value : values) {
    weights.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
  }
  const auto block = encode_bf16(std::as_bytes(std::span(weights)), 1003, 768).value();
  Matrix w{WeightFormat::kCodedBf16, nullptr, nullptr, 1003, 768};
  w.coded = open_coded_bf16(block, 1003, 768).value();
  const std::vector<float> x = random_floats(4 * w.cols, 3);
  const std::vector<float> want = one_call(table, w, x, 4);
  for (const int threads : {1, 2, 3, 8}) {
    std::vector<float> y(4 * w.rows, NAN);
    Multiplier(table, threads).multiply(w, x.data(), w.cols, 4, y.data(), w.rows);
    EXPECT_TRUE(same_bits(y, want)) << threads << " threads";
  }
}

TEST(Multiplier, UsesTheTableItWasGiven) {
  const Multiplier multiplier(reference_table(), 2);
  EXPECT_EQ(&multiplier.table(), &reference_table());
  EXPECT_EQ(multiplier.threads(), 2);
}

TEST(Multiplier, EmptyProductTouchesNothing) {
  float y = 5.0F;
  Multiplier(reference_table(), 2)
      .multiply({WeightFormat::kBf16, nullptr, nullptr, 0, 64}, nullptr, 64, 1, &y, 1);
  EXPECT_EQ(y, 5.0F);
}

TEST(Multiplier, ForEachCallsEveryIndexOnce) {
  for (const int threads : {1, 3}) {
    std::vector<std::atomic<int>> calls(1000);
    Multiplier(reference_table(), threads).for_each(calls.size(), [&](std::size_t i) {
      ++calls[i];
    });
    for (const auto& count : calls) EXPECT_EQ(count, 1);
  }
}

}  // namespace
}  // namespace k3::kernels
