#include "common/codec/coded_bf16.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>

#include "common/base/check.h"

namespace k3 {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kLanes = 16;
constexpr std::size_t kVectors = kCodedGroup / kLanes;
constexpr std::uint32_t kSignAndMantissa = 0x807F0000;

// A block begins with this; rows (padded to 4 bytes), first_escape, escape_columns and
// escape_exponents follow.
struct CodedHeader {
  std::array<std::uint8_t, 16> exponents;
  std::uint64_t escapes;
  std::array<std::uint8_t, 40> reserved;  // 0
};
static_assert(sizeof(CodedHeader) == 64);

std::size_t rows_bytes(std::size_t rows, std::size_t cols) {
  return (rows * coded_row_bytes(cols) + 3) / 4 * 4;
}

std::size_t block_bytes(std::size_t rows, std::size_t cols, std::size_t escapes) {
  return sizeof(CodedHeader) + rows_bytes(rows, cols) + (rows + 1) * sizeof(std::uint32_t) +
         escapes * (sizeof(std::uint16_t) + sizeof(std::uint8_t));
}

std::uint32_t load_word(const std::uint8_t* at) {
  std::uint32_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

std::uint8_t exponent_of(std::uint16_t value) { return static_cast<std::uint8_t>(value >> 7); }

// The 15 commonest exponents, the commonest first, and their codes.
struct ExponentTable {
  std::array<std::uint8_t, 16> exponents{};
  std::array<std::uint8_t, 256> code_of{};
  std::size_t escapes = 0;  // values whose exponent has no code

  explicit ExponentTable(const std::array<std::size_t, 256>& counts) {
    std::array<int, 256> order{};
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return counts[a] > counts[b]; });
    code_of.fill(kEscapeCode);
    for (std::uint8_t code = 0; code < kEscapeCode; ++code) {
      exponents[code] = static_cast<std::uint8_t>(order[code]);
      code_of[order[code]] = code;
    }
    for (std::size_t i = kEscapeCode; i < order.size(); ++i) escapes += counts[order[i]];
  }
};

// A matrix of bf16 values, wherever it lies.
class RawRows {
 public:
  RawRows(std::span<const std::byte> raw, std::size_t rows, std::size_t cols)
      : raw_(raw), rows_(rows), cols_(cols) {
    K3_CHECK(raw.size() == rows * cols * 2, "bf16 bytes of another shape");
  }

  std::uint16_t at(std::size_t row, std::size_t col) const {
    std::uint16_t value;
    std::memcpy(&value, raw_.data() + (row * cols_ + col) * 2, sizeof value);
    return value;
  }
  const std::byte* tail(std::size_t row) const {
    return raw_.data() + (row * cols_ + coded_cols()) * 2;
  }
  std::size_t rows() const { return rows_; }
  std::size_t coded_cols() const { return cols_ / kCodedGroup * kCodedGroup; }
  std::size_t tail_bytes() const { return cols_ % kCodedGroup * 2; }

  std::array<std::size_t, 256> count_exponents() const {
    std::array<std::size_t, 256> counts{};
    for (std::size_t r = 0; r < rows_; ++r) {
      for (std::size_t c = 0; c < coded_cols(); ++c) ++counts[exponent_of(at(r, c))];
    }
    return counts;
  }

 private:
  std::span<const std::byte> raw_;
  std::size_t rows_, cols_;
};

// The 192 bytes of one group.
struct Group {
  std::array<std::uint32_t, kLanes> codes{};
  std::array<std::array<std::uint32_t, kLanes>, 2> signs_and_mantissas{};

  void put(std::size_t position, std::uint16_t value, std::uint8_t code) {
    const std::size_t vector = position / kLanes;
    const std::size_t lane = position % kLanes;
    const std::uint32_t bits = (std::uint32_t{value} << 16) & kSignAndMantissa;
    codes[lane] |= std::uint32_t{code} << (4 * vector);
    signs_and_mantissas[vector / 4][lane] |= std::rotl(bits, static_cast<int>(8 * (vector % 4)));
  }
};
static_assert(sizeof(Group) == kCodedGroupBytes);

// Writes the parts of a block one after another.
class Encoder {
 public:
  Encoder(const RawRows& raw, const ExponentTable& table, std::span<std::byte> out)
      : raw_(raw), table_(table), out_(out) {}

  void run(std::size_t rows_bytes) {
    const CodedHeader header{table_.exponents, table_.escapes, {}};
    std::memcpy(out_.data(), &header, sizeof header);
    std::byte* to = out_.data() + sizeof header;
    std::byte* const after_rows = to + rows_bytes;
    for (std::size_t r = 0; r < raw_.rows(); ++r) {
      first_.push_back(static_cast<std::uint32_t>(columns_.size()));
      for (std::size_t c = 0; c < raw_.coded_cols(); c += kCodedGroup, to += kCodedGroupBytes) {
        const Group group = encode_group(r, c);
        std::memcpy(to, &group, sizeof group);
      }
      std::memcpy(to, raw_.tail(r), raw_.tail_bytes());
      to += raw_.tail_bytes();
    }
    first_.push_back(static_cast<std::uint32_t>(columns_.size()));
    to = append(after_rows, first_);
    to = append(to, columns_);
    append(to, exponents_);
  }

 private:
  Group encode_group(std::size_t row, std::size_t first_col) {
    Group group;
    for (std::size_t i = 0; i < kCodedGroup; ++i) {
      const std::uint16_t value = raw_.at(row, first_col + i);
      const std::uint8_t code = table_.code_of[exponent_of(value)];
      group.put(i, value, code);
      if (code != kEscapeCode) continue;
      columns_.push_back(static_cast<std::uint16_t>(first_col + i));
      exponents_.push_back(exponent_of(value));
    }
    return group;
  }

  template <class T>
  static std::byte* append(std::byte* to, const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return std::copy(bytes.begin(), bytes.end(), to);
  }

  const RawRows& raw_;
  const ExponentTable& table_;
  std::span<std::byte> out_;
  std::vector<std::uint32_t> first_;
  std::vector<std::uint16_t> columns_;
  std::vector<std::uint8_t> exponents_;
};

Status check_escapes(const CodedBf16& coded, std::size_t rows, std::size_t cols,
                     std::uint64_t escapes) {
  const std::size_t coded_cols = cols / kCodedGroup * kCodedGroup;
  if (coded.first_escape[0] != 0 || coded.first_escape[rows] != escapes) {
    return fail(ErrorCode::kWeights, "coded block: rows list escapes {} to {}, the header {}",
                coded.first_escape[0], coded.first_escape[rows], escapes);
  }
  for (std::size_t r = 0; r < rows; ++r) {
    const std::uint32_t begin = coded.first_escape[r];
    const std::uint32_t end = coded.first_escape[r + 1];
    if (begin > end || end > escapes) {
      return fail(ErrorCode::kWeights, "coded block: row {} lists escapes {} to {} of {}", r, begin,
                  end, escapes);
    }
    for (std::uint32_t e = begin; e < end; ++e) {
      const std::uint16_t column = coded.escape_columns[e];
      if (column >= coded_cols || (e > begin && column <= coded.escape_columns[e - 1])) {
        return fail(ErrorCode::kWeights, "coded block: row {}: escape at column {} of {}", r,
                    column, coded_cols);
      }
    }
  }
  return {};
}

}  // namespace

std::optional<std::vector<std::byte>> encode_bf16(std::span<const std::byte> raw, std::size_t rows,
                                                  std::size_t cols) {
  const RawRows matrix(raw, rows, cols);
  if (cols > kMaxCodedCols) return std::nullopt;
  const ExponentTable table(matrix.count_exponents());
  const std::size_t bytes = block_bytes(rows, cols, table.escapes);
  if (bytes >= raw.size()) return std::nullopt;
  std::vector<std::byte> block(bytes);
  Encoder(matrix, table, block).run(rows_bytes(rows, cols));
  return block;
}

Result<CodedBf16> open_coded_bf16(std::span<const std::byte> block, std::size_t rows,
                                  std::size_t cols) {
  K3_CHECK(reinterpret_cast<std::uintptr_t>(block.data()) % alignof(std::uint32_t) == 0,
           "a coded block out of alignment");
  CodedHeader header{};
  if (block.size() >= sizeof header) std::memcpy(&header, block.data(), sizeof header);
  // More escapes than values would overflow the sum below.
  const bool sensible = block.size() >= sizeof header && header.escapes <= rows * cols;
  if (!sensible || block.size() != block_bytes(rows, cols, header.escapes)) {
    return fail(ErrorCode::kWeights, "coded block: {} bytes for {} x {} values with {} escapes",
                block.size(), rows, cols, header.escapes);
  }
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(block.data());
  const std::uint8_t* const first = bytes + sizeof header + rows_bytes(rows, cols);
  const std::uint8_t* const columns = first + (rows + 1) * sizeof(std::uint32_t);
  const CodedBf16 coded{.exponents = bytes,
                        .rows = bytes + sizeof header,
                        .row_bytes = coded_row_bytes(cols),
                        .first_escape = reinterpret_cast<const std::uint32_t*>(first),
                        .escape_columns = reinterpret_cast<const std::uint16_t*>(columns),
                        .escape_exponents = columns + header.escapes * sizeof(std::uint16_t)};
  if (header.exponents[kEscapeCode] != 0) {
    return fail(ErrorCode::kWeights, "coded block: exponent {} for the escape code",
                header.exponents[kEscapeCode]);
  }
  K3_TRY(check_escapes(coded, rows, cols, header.escapes));
  return coded;
}

void decode_bf16_row(const CodedBf16& coded, std::size_t row, std::size_t cols,
                     std::uint16_t* out) {
  const std::uint8_t* from = coded.rows + row * coded.row_bytes;
  const std::size_t coded_cols = cols / kCodedGroup * kCodedGroup;
  for (std::size_t c = 0; c < coded_cols; ++c) {
    const std::uint8_t* const group = from + c / kCodedGroup * kCodedGroupBytes;
    const std::size_t vector = c % kCodedGroup / kLanes;
    const std::size_t lane = c % kLanes;
    const std::uint32_t code = (load_word(group + 4 * lane) >> (4 * vector)) & 0xF;
    const std::uint32_t word =
        load_word(group + kCodedCodeBytes + (vector / 4 * kLanes + lane) * 4);
    const std::uint32_t bits =
        std::rotr(word, static_cast<int>(8 * (vector % 4))) & kSignAndMantissa;
    out[c] = static_cast<std::uint16_t>((bits >> 16) | (coded.exponents[code] << 7));
  }
  for (std::uint32_t e = coded.first_escape[row]; e < coded.first_escape[row + 1]; ++e) {
    out[coded.escape_columns[e]] |= static_cast<std::uint16_t>(coded.escape_exponents[e] << 7);
  }
  std::memcpy(out + coded_cols, from + cols / kCodedGroup * kCodedGroupBytes,
              (cols - coded_cols) * 2);
}

}  // namespace k3
