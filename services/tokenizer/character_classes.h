// The Unicode 16.0 properties that pre-tokenisation looks at, one byte a code point.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace k3::tokenizer {

// Bits of one code point. Capitals and lower case are the two word classes of the pattern: caseless
// letters and marks are in both, Han characters in neither.
using CharacterClass = std::uint8_t;
inline constexpr CharacterClass kHan = 1;       // Script=Han
inline constexpr CharacterClass kUpper = 2;     // Lu Lt Lm Lo M, without Han
inline constexpr CharacterClass kLower = 4;     // Ll Lm Lo M, without Han
inline constexpr CharacterClass kLetter = 8;    // L
inline constexpr CharacterClass kNumber = 16;   // N
inline constexpr CharacterClass kSpace = 32;    // White_Space
inline constexpr CharacterClass kNewline = 64;  // CR and LF
inline constexpr CharacterClass kBlank = 128;   // White_Space and U+001C to U+001F

// All code points from `first` up to the next run's have `classes`.
struct ClassRun {
  char32_t first;
  CharacterClass classes;
};

// The runs in order; the first starts at 0, the last ends with U+10FFFF (unicode_tables.cpp).
std::span<const ClassRun> class_runs();

// The runs spread out for look-up (1.1 MB). Immutable; any thread.
class CharacterClasses {
 public:
  CharacterClasses();

  // `code_point` is at most U+10FFFF.
  CharacterClass operator[](char32_t code_point) const { return classes_[code_point]; }

 private:
  std::vector<CharacterClass> classes_;
};

}  // namespace k3::tokenizer
