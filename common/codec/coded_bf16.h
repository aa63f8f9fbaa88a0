// Lossless 12-bit storage of bf16 matrices: sign and mantissa verbatim, the exponent as a 4-bit
// code for one of the block's 15 commonest exponents, all others listed apart. docs/formats.md has
// the layout; the kernels multiply straight from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "common/codec/coded_layout.h"

namespace k3 {

// Bytes of one row, escapes apart.
constexpr std::size_t coded_row_bytes(std::size_t cols) {
  return cols / kCodedGroup * kCodedGroupBytes + cols % kCodedGroup * 2;
}

// Codes `rows` x `cols` bf16 values (row-major, little-endian). Nothing when that takes no fewer
// bytes, or when cols is above kMaxCodedCols. `threads` share the rows, the caller one of them; the
// bytes do not depend on it.
std::optional<std::vector<std::byte>> encode_bf16(std::span<const std::byte> raw, std::size_t rows,
                                                  std::size_t cols, unsigned threads = 1);

// The parts of `block`, which begins at a multiple of 4 bytes (K3_CHECK). kWeights with the numbers
// when its size or its escapes cannot be those of a matrix rows x cols.
Result<CodedBf16> open_coded_bf16(std::span<const std::byte> block, std::size_t rows,
                                  std::size_t cols);

// The bf16 values of row `row`, exactly those that were coded.
void decode_bf16_row(const CodedBf16& coded, std::size_t row, std::size_t cols, std::uint16_t* out);

}  // namespace k3
