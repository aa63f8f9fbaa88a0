// How a coded bf16 block lies in memory: for the codec and the kernels that multiply from it. No
// function here, since the kernels are compiled for other instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace k3 {

// Columns are coded in groups of 128; the rest of a row stays bf16. A group is 64 bytes of codes,
// then 128 bytes of signs and mantissas, all in 32-bit lanes. Column 16 v + l of a group has its
// code in bits 4 v .. 4 v + 3 of code lane l; with k = v % 4, its sign is bit 31 and its mantissa
// bits 16..22 of lane l of the sixteen lanes number v / 4 after them, rotated right by 8 k.
inline constexpr std::size_t kCodedGroup = 128;
inline constexpr std::size_t kCodedCodeBytes = 64;
inline constexpr std::size_t kCodedGroupBytes = 192;
// The code of an exponent that is not in the table: its weight is among the escapes.
inline constexpr std::uint8_t kEscapeCode = 15;
// Escapes name their column in 16 bits.
inline constexpr std::size_t kMaxCodedCols = 65536;

// A coded matrix (borrowed; see open_coded_bf16). An escape counts 0 as its exponent in the table,
// so its weight decodes to the bits of sign and mantissa alone.
struct CodedBf16 {
  const std::uint8_t* exponents = nullptr;  // [16], the last is 0
  const std::uint8_t* rows = nullptr;       // [rows][row_bytes]
  std::size_t row_bytes = 0;
  const std::uint32_t* first_escape =
      nullptr;  // [rows + 1]: row r has first[r] .. first[r + 1] - 1
  const std::uint16_t* escape_columns = nullptr;   // rising within a row
  const std::uint8_t* escape_exponents = nullptr;  // of the same escapes
};

}  // namespace k3
