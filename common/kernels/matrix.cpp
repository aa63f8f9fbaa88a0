// Products over a team of threads: a matrix is cut into blocks of rows that fit a core's cache.
#include "common/kernels/matrix.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/check.h"

namespace k3::kernels {
namespace {

// A block stays in the second-level cache while every batch row meets it.
constexpr std::size_t kBlockBytes = 256 * 1024;
// From this many batch rows on, it is the inputs that are to stay in that cache: the longer a
// block, the more seldom they are fetched. Measured on bf16 and MXFP4.
constexpr std::size_t kLargeBatch = 16;
constexpr std::size_t kLargeBatchBlockBytes = 4 * 1024 * 1024;
// Tables work on several rows at once; blocks of a multiple of this many waste none of them.
constexpr std::size_t kRowGranule = 24;
// Blocks per thread that suffice to even out threads of different speed.
constexpr std::size_t kBlocksPerThread = 4;
// Below this many multiply-adds, starting the team costs more than it saves.
constexpr std::size_t kMinParallelWork = 64 * 1024;

std::size_t ceil_div(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

std::size_t block_rows(const Matrix& w, std::size_t batch, std::size_t least_blocks) {
  const std::size_t block_bytes = batch < kLargeBatch ? kBlockBytes : kLargeBatchBlockBytes;
  const std::size_t by_cache = block_bytes / std::max<std::size_t>(w.row_bytes(), 1);
  const std::size_t by_threads = ceil_div(w.rows, least_blocks);
  const std::size_t rows = std::max<std::size_t>(std::min(by_cache, by_threads), 1);
  return ceil_div(rows, kRowGranule) * kRowGranule;
}

// Some rows of one product.
struct Block {
  const Product* product;
  std::size_t first;
  std::size_t rows;
};

std::vector<Block> cut(std::span<const Product> products, std::size_t batch,
                       std::size_t least_blocks) {
  std::vector<Block> blocks;
  for (const Product& product : products) {
    const std::size_t rows = block_rows(product.w, batch, least_blocks);
    for (std::size_t first = 0; first < product.w.rows; first += rows) {
      blocks.push_back({&product, first, std::min(rows, product.w.rows - first)});
    }
  }
  return blocks;
}

std::size_t multiply_adds(std::span<const Product> products, std::size_t batch) {
  std::size_t sum = 0;
  for (const Product& product : products) sum += product.w.rows * product.w.cols * batch;
  return sum;
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

void Multiplier::multiply(std::span<const Product> products, const float* x, std::size_t x_stride,
                          std::size_t batch) const {
  const bool alone = threads_ == 1 || multiply_adds(products, batch) < kMinParallelWork;
  const std::size_t least_blocks =
      alone ? 1 : static_cast<std::size_t>(threads_) * kBlocksPerThread;
  const std::vector<Block> blocks = cut(products, batch, least_blocks);
  const auto one_block = [&](std::size_t i) {
    const Block& block = blocks[i];
    multiply_rows(table_, block.product->w, block.first, block.rows, x, x_stride, batch,
                  block.product->y + block.first, block.product->y_stride);
  };
  if (alone) {
    for (std::size_t i = 0; i < blocks.size(); ++i) one_block(i);
  } else {
    for_each(blocks.size(), one_block);
  }
}

void Multiplier::multiply(const Matrix& w, const float* x, std::size_t x_stride, std::size_t batch,
                          float* y, std::size_t y_stride) const {
  const Product product{w, y, y_stride};
  multiply({&product, 1}, x, x_stride, batch);
}

}  // namespace k3::kernels
