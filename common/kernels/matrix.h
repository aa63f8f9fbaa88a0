// A weight matrix as it lies in memory, and its product with a batch over all threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/codec/coded_layout.h"
#include "common/kernels/kernel_table.h"

namespace k3::kernels {

enum class WeightFormat : std::uint8_t { kF32, kBf16, kCodedBf16, kMxfp4 };

// Borrowed bytes of `rows` rows of `cols` weights.
struct Matrix {
  WeightFormat format = WeightFormat::kBf16;
  const std::uint8_t* data = nullptr;
  const std::uint8_t* scales = nullptr;  // kMxfp4 only
  std::size_t rows = 0;
  std::size_t cols = 0;
  CodedBf16 coded = {};  // kCodedBf16 only, in place of data

  std::size_t row_bytes() const;
};

// One of several products with the same inputs: y[b * y_stride + r] = dot(row r of w, x[b]).
struct Product {
  Matrix w;
  float* y = nullptr;
  std::size_t y_stride = 0;
};

// A team of threads for products. One thread owns and calls it.
class Multiplier {
 public:
  // `table` is borrowed for the lifetime.
  Multiplier(const KernelTable& table, int threads);

  const KernelTable& table() const { return table_; }
  int threads() const { return threads_; }

  // Every product with x + b * x_stride, b < batch, as one parallel region. Rows are shared out in
  // blocks, dynamically; the bits do not depend on it.
  void multiply(std::span<const Product> products, const float* x, std::size_t x_stride,
                std::size_t batch) const;

  // The same for one product.
  void multiply(const Matrix& w, const float* x, std::size_t x_stride, std::size_t batch, float* y,
                std::size_t y_stride) const;

  // Calls body(i) for i in 0..count-1, each exactly once, on the team's threads.
  template <class Body>
  void for_each(std::size_t count, const Body& body) const;

 private:
  const KernelTable& table_;
  int threads_;
};

template <class Body>
void Multiplier::for_each(std::size_t count, const Body& body) const {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads_) if (threads_ > 1 && count > 1)
  for (std::size_t i = 0; i < count; ++i) body(i);
}

}  // namespace k3::kernels
