// Cuts text into the pieces that byte-pair encoding may not merge across.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "services/tokenizer/character_classes.h"

namespace k3::tokenizer {

// Repeated leftmost match of this pattern, first alternative first, greedy with backtracking, where
// U is [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]], L the same with \p{Ll} for \p{Lu}\p{Lt}, and
// S is (?i:'s|'t|'re|'ve|'m|'ll|'d):
//
//   [\p{Han}]+ | [^\r\n\p{L}\p{N}]?U*L+S? | [^\r\n\p{L}\p{N}]?U+L*S? | \p{N}{1,3}
//   | ` ?[^\s\p{L}\p{N}]+[\r\n]*` | \s*[\r\n]+ | \s+(?!\S) | \s+
//
// Every character is covered, so the pieces add up to the text. Each function below tries one
// alternative and never rescans more than the run it stands in, so splitting is linear.
//
// Keeps buffers between calls: one thread at a time.
class Pretokenizer {
 public:
  // `classes` is borrowed for the lifetime.
  explicit Pretokenizer(const CharacterClasses& classes) : classes_(classes) {}

  // The pieces of `text`, which is valid UTF-8, as views into it; valid until the next call.
  const std::vector<std::string_view>& split(std::string_view text);

 private:
  using Index = std::size_t;  // of a character

  void classify(std::string_view text);
  Index end_of_piece(Index start) const;

  // Each returns the index behind the match that starts at `start`; `start` itself is no match.
  Index match_word(Index start) const;
  Index match_symbols(Index start) const;
  Index match_white_space(Index start) const;
  // U*L+ and U+L*, without prefix and suffix.
  Index match_ending_in_lower(Index start) const;
  Index match_starting_with_upper(Index start) const;

  // Behind an apostrophe suffix at `start`, or `start`.
  Index skip_contraction(Index start) const;
  // The first character from `start` on that has none of `classes`, at most `limit` further.
  Index skip(Index start, CharacterClass classes,
             std::size_t limit = std::numeric_limits<std::size_t>::max()) const;
  bool is(Index i, CharacterClass classes) const {
    return i < class_of_.size() && (class_of_[i] & classes) != 0;
  }
  // The first byte of a character, NUL behind the end.
  char byte_at(Index i) const { return i < class_of_.size() ? text_[offset_of_[i]] : '\0'; }

  const CharacterClasses& classes_;
  std::string_view text_;
  std::vector<CharacterClass> class_of_;  // of each character
  std::vector<std::uint32_t> offset_of_;  // its first byte; one more entry for the end
  std::vector<std::string_view> pieces_;
};

}  // namespace k3::tokenizer
