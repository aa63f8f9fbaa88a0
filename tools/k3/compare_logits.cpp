// k3 compare-logits: how far two logits files (k3 run --dump-logits) are apart.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "common/base/file.h"
#include "tools/k3/commands.h"

namespace k3::cli {
namespace {

struct Flags {
  std::filesystem::path first;
  std::filesystem::path second;
  std::uint64_t vocab = 0;  // 0: unknown
  double atol = 0;
};

// What differs, gathered row by row.
struct Comparison {
  std::uint64_t rows = 0;
  std::uint64_t same_argmax = 0;
  std::uint64_t beyond = 0;  // values further apart than allowed
  double largest = -1;       // NaN against a number counts as infinite
  std::uint64_t largest_at = 0;
  float largest_first = 0;
  float largest_second = 0;
};

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

// Bit-equal values are 0 apart, NaN and infinities included.
double distance(float a, float b) {
  if (same_bits(a, b)) return 0;
  const double apart = std::fabs(static_cast<double>(a) - static_cast<double>(b));
  return std::isnan(apart) ? HUGE_VAL : apart;
}

std::size_t argmax(std::span<const float> row) {
  return static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

void compare_row(std::span<const float> first, std::span<const float> second, std::uint64_t begin,
                 double atol, Comparison& sum) {
  ++sum.rows;
  sum.same_argmax += argmax(first) == argmax(second) ? 1 : 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double apart = distance(first[i], second[i]);
    // With no tolerance 0 and -0 differ too.
    const bool allowed = atol > 0 ? apart <= atol : same_bits(first[i], second[i]);
    sum.beyond += allowed ? 0 : 1;
    if (apart <= sum.largest) continue;
    sum.largest = apart;
    sum.largest_at = begin + i;
    sum.largest_first = first[i];
    sum.largest_second = second[i];
  }
}

struct OpenFile {
  UniqueFd fd;
  std::uint64_t bytes = 0;
};

Result<OpenFile> open_logits(const std::filesystem::path& path) {
  OpenFile file;
  K3_ASSIGN(file.fd, open_for_reading(path));
  K3_ASSIGN(file.bytes, file_bytes(file.fd.get(), path));
  return file;
}

Status read_values(const OpenFile& file, const std::filesystem::path& path, std::uint64_t begin,
                   std::span<float> out) {
  return read_exactly(file.fd.get(), begin * sizeof(float), std::as_writable_bytes(out), path);
}

void print(const Comparison& sum, const Flags& flags) {
  if (flags.vocab > 0) {
    fmt::print("rows {}, same argmax in {}\n", sum.rows, sum.same_argmax);
    fmt::print("largest difference {:.9g} in row {} at id {}: {:.9g} and {:.9g}\n", sum.largest,
               sum.largest_at / flags.vocab, sum.largest_at % flags.vocab, sum.largest_first,
               sum.largest_second);
  } else {
    fmt::print("largest difference {:.9g} at value {}: {:.9g} and {:.9g}\n", sum.largest,
               sum.largest_at, sum.largest_first, sum.largest_second);
  }
}

Status compare(const Flags& flags) {
  K3_ASSIGN(const OpenFile first, open_logits(flags.first));
  K3_ASSIGN(const OpenFile second, open_logits(flags.second));
  if (first.bytes != second.bytes) {
    return fail(ErrorCode::kFailed, "sizes differ: {} has {} bytes, {} has {}",
                flags.first.string(), first.bytes, flags.second.string(), second.bytes);
  }
  const std::uint64_t row_bytes = std::max<std::uint64_t>(flags.vocab, 1) * sizeof(float);
  if (first.bytes == 0 || first.bytes % row_bytes != 0) {
    return fail(ErrorCode::kFailed, "{}: {} bytes are no whole number of rows of {} bytes",
                flags.first.string(), first.bytes, row_bytes);
  }
  const std::uint64_t total = first.bytes / sizeof(float);
  constexpr std::uint64_t kBlockValues = 1 << 18;  // when the width of a row is unknown
  const std::uint64_t width = flags.vocab > 0 ? flags.vocab : kBlockValues;
  Comparison sum;
  std::vector<float> first_row, second_row;
  for (std::uint64_t begin = 0; begin < total; begin += width) {
    const std::uint64_t values = std::min(width, total - begin);
    first_row.resize(values);
    second_row.resize(values);
    K3_TRY(read_values(first, flags.first, begin, first_row));
    K3_TRY(read_values(second, flags.second, begin, second_row));
    compare_row(first_row, second_row, begin, flags.atol, sum);
  }
  print(sum, flags);
  if (sum.beyond == 0) return {};
  return fail(ErrorCode::kFailed, "{} of {} values differ by more than {}", sum.beyond, total,
              flags.atol);
}

}  // namespace

void add_compare_logits(CLI::App& root, Action& action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      root.add_subcommand("compare-logits", "compare two logits files (exit 1 when they differ)");
  command->add_option("first", flags->first, "file of k3 run --dump-logits")->required();
  command->add_option("second", flags->second, "another one")->required();
  command->add_option("--vocab", flags->vocab, "values a row: names row and id, compares argmax")
      ->check(CLI::PositiveNumber);
  command->add_option("--atol", flags->atol, "largest difference allowed (default: bit for bit)")
      ->check(CLI::NonNegativeNumber);
  command->callback([flags, &action] { action = [flags] { return compare(*flags); }; });
}

}  // namespace k3::cli
