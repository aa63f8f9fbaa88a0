#include "common/grammar/number_forms.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace k3::grammar {
namespace {

constexpr std::int64_t kMostInteger = 999'999'999'999'999'999;

Symbol digit(char c) { return static_cast<std::uint8_t>(c); }

// Digits from `low` to `high`, which are of one length.
Pc same_length(Program& program, std::string_view low, std::string_view high, Pc next) {
  if (low.empty()) return next;
  const std::string zeros(low.size() - 1, '0');
  const std::string nines(low.size() - 1, '9');
  const std::string_view low_rest = low.substr(1);
  const std::string_view high_rest = high.substr(1);
  if (low[0] == high[0]) {
    return program.symbol(digit(low[0]), same_length(program, low_rest, high_rest, next));
  }
  if (low_rest == zeros && high_rest == nines) {
    return program.range(digit(low[0]), digit(high[0]), same_length(program, zeros, nines, next));
  }
  if (low_rest != zeros) {
    const auto above = std::string(1, static_cast<char>(low[0] + 1)) + zeros;
    return program.either(
        program.symbol(digit(low[0]), same_length(program, low_rest, nines, next)),
        same_length(program, above, high, next));
  }
  const auto below = std::string(1, static_cast<char>(high[0] - 1)) + nines;
  return program.either(
      same_length(program, low, below, next),
      program.symbol(digit(high[0]), same_length(program, zeros, high_rest, next)));
}

// Whole numbers from `low` to `high`, both 0 or more, without leading zeros.
Pc between(Program& program, std::int64_t low, std::int64_t high, Pc next) {
  if (low > high) return kFail;
  Pc all = kFail;
  const std::string last = std::to_string(high);
  for (std::string from = std::to_string(low); from.size() <= last.size();
       from = "1" + std::string(from.size(), '0')) {
    const std::string to = from.size() == last.size() ? last : std::string(from.size(), '9');
    all = program.either(all, same_length(program, from, to, next));
  }
  return all;
}

// Numbers from `low` to `high`, 0 or more.
Pc decimals(Program& program, const Bound& low, const Bound& high, Pc next) {
  const Pc zeros = program.symbol('0', program.up_to(5, '0', '0', next));
  const Pc whole = program.either(next, program.symbol('.', zeros));
  if (low.value > high.value) return kFail;
  if (low.value == high.value) {
    const bool none = low.exclusive || high.exclusive;
    return none ? kFail : between(program, low.value, low.value, whole);
  }
  const Pc some = program.symbol('.', program.range('0', '9', program.up_to(5, '0', '9', next)));
  const Pc any = program.either(next, some);
  Pc positive = kFail;  // decimals that are not all zero
  for (std::size_t more = 0; more < 6; ++more) {
    positive = program.either(program.range('1', '9', program.up_to(more, '0', '9', next)),
                              program.symbol('0', positive));
  }
  Pc all =
      between(program, low.value, low.value, low.exclusive ? program.symbol('.', positive) : any);
  all = program.either(all, between(program, low.value + 1, high.value - 1, any));
  if (high.exclusive) return all;
  return program.either(all, between(program, high.value, high.value, whole));
}

}  // namespace

Pc integers(Program& program, std::optional<std::int64_t> least, std::optional<std::int64_t> most,
            Pc next) {
  const std::int64_t low = least.value_or(-kMostInteger);
  const std::int64_t high = most.value_or(kMostInteger);
  if (low > high) return kFail;
  Pc all = kFail;
  if (high >= 0) all = between(program, std::max<std::int64_t>(low, 0), high, next);
  if (low >= 0) return all;
  return program.either(
      all, program.symbol('-', between(program, std::max<std::int64_t>(-high, 1), -low, next)));
}

Pc numbers(Program& program, const std::optional<Bound>& least, const std::optional<Bound>& most,
           Pc next) {
  const Bound low = least.value_or(Bound{-kMaxNumberBound, true});
  const Bound high = most.value_or(Bound{kMaxNumberBound, true});
  if (low.value > high.value) return kFail;
  const Bound zero{0, false};
  Pc all = kFail;
  if (high.value >= 0) all = decimals(program, low.value < 0 ? zero : low, high, next);
  if (low.value >= 0) return all;
  // "-0.5" but not "-0" where 0 itself is out of bounds.
  const Bound near = high.value < 0 ? Bound{-high.value, high.exclusive}
                                    : Bound{0, high.value == 0 && high.exclusive};
  const Bound far{-low.value, low.exclusive};
  return program.either(all, program.symbol('-', decimals(program, near, far, next)));
}

}  // namespace k3::grammar
