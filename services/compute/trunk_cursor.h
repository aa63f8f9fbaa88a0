// Walks the trunk in its order: checks every block, multiplies by it or copies it, lets it go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/checkpoint/trunk_order.h"
#include "common/kernels/matrix.h"
#include "services/compute/weight_source.h"

namespace k3::compute {

// Every call names the tensor it expects (layer, role) and moves past it; the caller's order must
// be the trunk's (K3_CHECK). A block that does not continue the tensor where the previous one
// ended, or whose size does not fit its rows, is kWeights naming tensor, rows and bytes. One
// thread.
class TrunkCursor {
 public:
  // All borrowed; `order` and `reader` describe the same tensors.
  TrunkCursor(const std::vector<TrunkTensor>& order, TrunkReader& reader,
              const kernels::Multiplier& multiplier);

  // Back to the first tensor, for a new pass of the reader; products not completed are forgotten.
  void restart();

  // The whole tensor widened to fp32, row-major; `out` holds exactly rows * cols floats (K3_CHECK).
  Status read(int layer, TrunkRole role, std::span<float> out);

  // y[b * y_stride + r] = dot(row r, x + b * x_stride) for all rows of the tensor, at the latest
  // when complete() returns. Products queued one after another with the same inputs run as one
  // parallel region, as far as their rows lie in one unit; other inputs complete what is queued.
  Status queue(int layer, TrunkRole role, const float* x, std::size_t x_stride, std::size_t batch,
               float* y, std::size_t y_stride);

  // Computes what is queued; its inputs must be as they were.
  void complete();

  // The same at once, and all that was queued.
  Status multiply(int layer, TrunkRole role, const float* x, std::size_t x_stride,
                  std::size_t batch, float* y, std::size_t y_stride);

  // Hands over the tensor as it arrives: runs of whole row groups, each valid during the call only.
  using UseRows = std::function<void(std::size_t first_row, const kernels::Matrix& rows)>;
  Status each_block(int layer, TrunkRole role, const UseRows& use);

  Status skip(int layer, TrunkRole role);

 private:
  const std::vector<TrunkTensor>& order_;
  TrunkReader& reader_;
  const kernels::Multiplier& multiplier_;
  std::size_t next_ = 0;
  // Queued, with the inputs of all.
  std::vector<kernels::Product> products_;
  const float* x_ = nullptr;
  std::size_t x_stride_ = 0;
  std::size_t batch_ = 0;
};

// Widens `count` weights to fp32. `encoding` was checked.
void widen(const kernels::KernelTable& table, TrunkEncoding encoding, const std::byte* bytes,
           float* out, std::size_t count);

// The plain encoding behind a wire value; kWeights naming `what` when it is coded or unknown.
Result<TrunkEncoding> checked_encoding(std::uint8_t value, std::string_view what);

// Bytes of one weight.
constexpr std::size_t weight_bytes(TrunkEncoding encoding) {
  return encoding == TrunkEncoding::kRawF32 ? 4 : 2;
}

}  // namespace k3::compute
