#include "common/codec/coded_bf16.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <thread>

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

using ExponentCounts = std::array<std::size_t, 256>;

// The 15 commonest exponents, the commonest first, and their codes.
struct ExponentTable {
  std::array<std::uint8_t, 16> exponents{};
  std::array<std::uint8_t, 256> code_of{};
  std::size_t escapes = 0;  // values whose exponent has no code

  explicit ExponentTable(const ExponentCounts& counts) {
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

// The rows one thread codes, and what it finds of them that lies apart from the rows.
struct Share {
  std::size_t first_row = 0;
  std::size_t end_row = 0;
  ExponentCounts counts{};
  std::vector<std::uint32_t> row_escapes;  // a number a row
  std::vector<std::uint16_t> columns;
  std::vector<std::uint8_t> exponents;
};

void count_exponents(const RawRows& raw, Share& share) {
  for (std::size_t r = share.first_row; r < share.end_row; ++r) {
    for (std::size_t c = 0; c < raw.coded_cols(); ++c) ++share.counts[exponent_of(raw.at(r, c))];
  }
}

// Writes the rows of a share to their place, which `to` is.
void encode_rows(const RawRows& raw, const ExponentTable& table, Share& share, std::byte* to) {
  const auto encode_group = [&](std::size_t row, std::size_t first_col) {
    Group group;
    for (std::size_t i = 0; i < kCodedGroup; ++i) {
      const std::uint16_t value = raw.at(row, first_col + i);
      const std::uint8_t code = table.code_of[exponent_of(value)];
      group.put(i, value, code);
      if (code != kEscapeCode) continue;
      share.columns.push_back(static_cast<std::uint16_t>(first_col + i));
      share.exponents.push_back(exponent_of(value));
    }
    return group;
  };
  for (std::size_t r = share.first_row; r < share.end_row; ++r) {
    const std::size_t before = share.columns.size();
    for (std::size_t c = 0; c < raw.coded_cols(); c += kCodedGroup, to += kCodedGroupBytes) {
      const Group group = encode_group(r, c);
      std::memcpy(to, &group, sizeof group);
    }
    std::memcpy(to, raw.tail(r), raw.tail_bytes());
    to += raw.tail_bytes();
    share.row_escapes.push_back(static_cast<std::uint32_t>(share.columns.size() - before));
  }
}

// Equal shares of the rows, the last ones empty when there are fewer rows than shares.
std::vector<Share> share_out(std::size_t rows, std::size_t count) {
  std::vector<Share> shares(count);
  for (std::size_t i = 0; i < count; ++i) {
    shares[i].first_row = rows * i / count;
    shares[i].end_row = rows * (i + 1) / count;
  }
  return shares;
}

// Calls `body` for each share, each in a thread of its own but for the first.
template <class Body>
void in_threads(std::vector<Share>& shares, const Body& body) {
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < shares.size(); ++i) {
    threads.emplace_back([&body, &share = shares[i]] { body(share); });
  }
  body(shares[0]);
}

// What follows the rows: the number of the first escape of each row, then columns and exponents.
void write_escapes(const std::vector<Share>& shares, std::byte* to) {
  std::vector<std::uint32_t> first = {0};
  for (const Share& share : shares) {
    for (const std::uint32_t escapes : share.row_escapes) first.push_back(first.back() + escapes);
  }
  const auto append = [&to](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    to = std::copy(bytes.begin(), bytes.end(), to);
  };
  append(first);
  for (const Share& share : shares) append(share.columns);
  for (const Share& share : shares) append(share.exponents);
}

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
                                                  std::size_t cols, unsigned threads) {
  const RawRows matrix(raw, rows, cols);
  if (cols > kMaxCodedCols) return std::nullopt;
  std::vector<Share> shares = share_out(rows, std::max(threads, 1u));
  in_threads(shares, [&](Share& share) { count_exponents(matrix, share); });
  ExponentCounts counts{};
  for (const Share& share : shares) {
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += share.counts[i];
  }
  const ExponentTable table(counts);
  const std::size_t bytes = block_bytes(rows, cols, table.escapes);
  if (bytes >= raw.size()) return std::nullopt;
  std::vector<std::byte> block(bytes);
  const CodedHeader header{table.exponents, table.escapes, {}};
  std::memcpy(block.data(), &header, sizeof header);
  std::byte* const first_row = block.data() + sizeof header;
  in_threads(shares, [&](Share& share) {
    encode_rows(matrix, table, share, first_row + share.first_row * coded_row_bytes(cols));
  });
  write_escapes(shares, first_row + rows_bytes(rows, cols));
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
