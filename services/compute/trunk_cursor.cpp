#include "services/compute/trunk_cursor.h"

#include <cstring>

#include "common/base/check.h"
#include "common/codec/coded_bf16.h"

namespace k3::compute {

namespace {

Result<kernels::Matrix> coded_rows(const TrunkBlock& block, const TrunkTensor& tensor) {
  if (!is_product(tensor.role)) {
    return fail(ErrorCode::kWeights, "{}: coded, but not a matrix of products", tensor.name);
  }
  const Result<CodedBf16> coded = open_coded_bf16(block.bytes, block.rows, tensor.cols);
  if (!coded) {
    return fail(ErrorCode::kWeights, "{} from row {}: {}", tensor.name, block.first_row,
                coded.error().message);
  }
  return kernels::Matrix{.format = kernels::WeightFormat::kCodedBf16,
                         .rows = block.rows,
                         .cols = tensor.cols,
                         .coded = *coded};
}

Result<kernels::Matrix> checked_rows(const TrunkBlock& block, const TrunkTensor& tensor,
                                     std::size_t index, std::size_t expected_row) {
  if (block.tensor != index || block.first_row != expected_row) {
    return fail(ErrorCode::kWeights,
                "trunk delivered tensor {} from row {} where {} (tensor {}) from row {} is due",
                block.tensor, block.first_row, tensor.name, index, expected_row);
  }
  if (block.rows == 0 || block.rows > tensor.rows - expected_row ||
      block.rows % tensor.row_group != 0) {
    return fail(ErrorCode::kWeights, "{}: {} rows from row {} of {}, in groups of {}", tensor.name,
                block.rows, expected_row, tensor.rows, tensor.row_group);
  }
  if (TrunkEncoding(block.encoding) == TrunkEncoding::kCodedBf16) {
    return coded_rows(block, tensor);
  }
  K3_ASSIGN(const TrunkEncoding encoding, checked_encoding(block.encoding, tensor.name));
  const std::size_t expected_bytes = std::size_t{block.rows} * tensor.cols * weight_bytes(encoding);
  if (block.bytes.size() != expected_bytes) {
    return fail(ErrorCode::kWeights, "{}: {} rows from row {} have {} bytes, expected {}",
                tensor.name, block.rows, expected_row, block.bytes.size(), expected_bytes);
  }
  return kernels::Matrix{.format = encoding == TrunkEncoding::kRawF32
                                       ? kernels::WeightFormat::kF32
                                       : kernels::WeightFormat::kBf16,
                         .data = reinterpret_cast<const std::uint8_t*>(block.bytes.data()),
                         .rows = block.rows,
                         .cols = tensor.cols};
}

}  // namespace

Result<TrunkEncoding> checked_encoding(std::uint8_t value, std::string_view what) {
  switch (static_cast<TrunkEncoding>(value)) {
    case TrunkEncoding::kRawF32:
    case TrunkEncoding::kRawBf16:
      return static_cast<TrunkEncoding>(value);
    case TrunkEncoding::kCodedBf16:
      return fail(ErrorCode::kWeights, "{}: coded where plain weights are due", what);
  }
  return fail(ErrorCode::kWeights, "{}: unknown trunk encoding {}", what, value);
}

void widen(const kernels::KernelTable& table, TrunkEncoding encoding, const std::byte* bytes,
           float* out, std::size_t count) {
  if (encoding == TrunkEncoding::kRawF32) {
    std::memcpy(out, bytes, count * sizeof(float));
  } else {
    table.widen_bf16(reinterpret_cast<const std::uint8_t*>(bytes), out, count);
  }
}

TrunkCursor::TrunkCursor(const std::vector<TrunkTensor>& order, TrunkReader& reader,
                         const kernels::Multiplier& multiplier)
    : order_(order), reader_(reader), multiplier_(multiplier) {}

void TrunkCursor::restart() {
  next_ = 0;
  products_.clear();
}

Status TrunkCursor::each_block(int layer, TrunkRole role, const UseRows& use) {
  K3_CHECK(next_ < order_.size(), "the trunk order has no further tensor");
  const TrunkTensor& tensor = order_[next_];
  K3_CHECK(tensor.layer == layer && tensor.role == role, tensor.name);
  for (std::size_t row = 0; row < tensor.rows;) {
    K3_ASSIGN(const TrunkBlock block, reader_.block());
    K3_ASSIGN(const kernels::Matrix rows, checked_rows(block, tensor, next_, row));
    use(row, rows);
    row += rows.rows;
    if (block.ends_unit) complete();
    reader_.done();
  }
  ++next_;
  return {};
}

Status TrunkCursor::read(int layer, TrunkRole role, std::span<float> out) {
  return each_block(layer, role, [&](std::size_t first_row, const kernels::Matrix& rows) {
    K3_CHECK(order_[next_].rows * rows.cols == out.size(), order_[next_].name);
    const auto encoding = rows.format == kernels::WeightFormat::kF32 ? TrunkEncoding::kRawF32
                                                                     : TrunkEncoding::kRawBf16;
    widen(multiplier_.table(), encoding, reinterpret_cast<const std::byte*>(rows.data),
          out.data() + first_row * rows.cols, rows.rows * rows.cols);
  });
}

Status TrunkCursor::queue(int layer, TrunkRole role, const float* x, std::size_t x_stride,
                          std::size_t batch, float* y, std::size_t y_stride) {
  if (x != x_ || x_stride != x_stride_ || batch != batch_) complete();
  x_ = x;
  x_stride_ = x_stride;
  batch_ = batch;
  return each_block(layer, role, [&](std::size_t first_row, const kernels::Matrix& rows) {
    products_.push_back({rows, y + first_row, y_stride});
  });
}

void TrunkCursor::complete() {
  if (!products_.empty()) multiplier_.multiply(products_, x_, x_stride_, batch_);
  products_.clear();
}

Status TrunkCursor::multiply(int layer, TrunkRole role, const float* x, std::size_t x_stride,
                             std::size_t batch, float* y, std::size_t y_stride) {
  K3_TRY(queue(layer, role, x, x_stride, batch, y, y_stride));
  complete();
  return {};
}

Status TrunkCursor::skip(int layer, TrunkRole role) {
  return each_block(layer, role, [](std::size_t, const kernels::Matrix&) {});
}

}  // namespace k3::compute
