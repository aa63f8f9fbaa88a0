// Numbers between bounds, in decimal.
#pragma once

#include <cstdint>
#include <optional>

#include "common/grammar/program.h"

namespace k3::grammar {

// Bounds of at most 18 digits; without one, up to 18 digits. kFail when nothing lies between.
Pc integers(Program& program, std::optional<std::int64_t> least, std::optional<std::int64_t> most,
            Pc next);

// A whole number as a bound, itself within or not.
struct Bound {
  std::int64_t value = 0;
  bool exclusive = false;
};

// Numbers with up to 6 decimals and no exponent. Bounds are within kMaxNumberBound, so that doubles
// tell 6 decimals apart; without one, up to 9 digits.
inline constexpr std::int64_t kMaxNumberBound = 1'000'000'000;
Pc numbers(Program& program, const std::optional<Bound>& least, const std::optional<Bound>& most,
           Pc next);

}  // namespace k3::grammar
