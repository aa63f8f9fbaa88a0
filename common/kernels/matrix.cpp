// Products over a team of threads: a matrix is cut into blocks of rows that fit a core's cache.
#include "common/kernels/matrix.h"

#include <algorithm>
#include <string>

#include "common/base/check.h"

namespace k3::kernels {
namespace {

// A block stays in the second-level cache while every batch row meets it.
constexpr std::size_t kBlockBytes = 256 * 1024;
// Tables work on several rows at once; blocks of a multiple of this many waste none of them.
constexpr std::size_t kRowGranule = 8;
// Blocks per thread that suffice to even out threads of different speed.
constexpr std::size_t kBlocksPerThread = 4;
// Below this many multiply-adds, starting the team costs more than it saves.
constexpr std::size_t kMinParallelWork = 64 * 1024;

std::size_t ceil_div(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

std::size_t block_rows(const Matrix& w, std::size_t threads) {
  const std::size_t by_cache = kBlockBytes / std::max<std::size_t>(w.row_bytes(), 1);
  const std::size_t by_threads =
      threads > 1 ? ceil_div(w.rows, threads * kBlocksPerThread) : w.rows;
  const std::size_t rows = std::max<std::size_t>(std::min(by_cache, by_threads), 1);
  return ceil_div(rows, kRowGranule) * kRowGranule;
}

// `y` belongs to row `first` of batch row 0.
void multiply_rows(const KernelTable& table, const Matrix& w, std::size_t first, std::size_t rows,
                   const float* x, std::size_t x_stride, std::size_t batch, float* y,
                   std::size_t y_stride) {
  if (w.format == WeightFormat::kCodedBf16) {
    return table.matmul_coded(w.coded, first, rows, w.cols, x, x_stride, batch, y, y_stride);
  }
  const std::uint8_t* const data = w.data + first * w.row_bytes();
  switch (w.format) {
    case WeightFormat::kCodedBf16:  // above
      return;
    case WeightFormat::kF32:
      table.matmul_f32(data, rows, w.cols, x, x_stride, batch, y, y_stride);
      return;
    case WeightFormat::kBf16:
      table.matmul_bf16(data, rows, w.cols, x, x_stride, batch, y, y_stride);
      return;
    case WeightFormat::kMxfp4:
      table.matmul_mxfp4(data, w.scales + first * (w.cols / 32), rows, w.cols, x, x_stride, batch,
                         y, y_stride);
      return;
  }
}

}  // namespace

std::size_t Matrix::row_bytes() const {
  switch (format) {
    case WeightFormat::kF32:
      return cols * 4;
    case WeightFormat::kBf16:
      return cols * 2;
    case WeightFormat::kCodedBf16:
      return coded.row_bytes;
    case WeightFormat::kMxfp4:
      return cols / 2;
  }
  K3_CHECK(false, "weight format " + std::to_string(static_cast<int>(format)));
}

Multiplier::Multiplier(const KernelTable& table, int threads)
    : table_(table), threads_(std::max(threads, 1)) {}

void Multiplier::multiply(const Matrix& w, const float* x, std::size_t x_stride, std::size_t batch,
                          float* y, std::size_t y_stride) const {
  const bool alone = threads_ == 1 || w.rows * w.cols * batch < kMinParallelWork;
  const std::size_t block = block_rows(w, alone ? 1 : static_cast<std::size_t>(threads_));
  const std::size_t blocks = ceil_div(w.rows, block);
  const auto one_block = [&](std::size_t i) {
    const std::size_t first = i * block;
    multiply_rows(table_, w, first, std::min(block, w.rows - first), x, x_stride, batch, y + first,
                  y_stride);
  };
  if (alone) {
    for (std::size_t i = 0; i < blocks; ++i) one_block(i);
  } else {
    for_each(blocks, one_block);
  }
}

}  // namespace k3::kernels
