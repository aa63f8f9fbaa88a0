// Text to token ids.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "services/tokenizer/bpe.h"
#include "services/tokenizer/character_classes.h"
#include "services/tokenizer/pretokenizer.h"
#include "services/tokenizer/vocabulary.h"

namespace k3::tokenizer {

// Cuts valid UTF-8 as the released tokenizer does before anything else: into blocks of 400,000
// characters, and each block before every character that would make a run of all blank or all
// non-blank ones longer than 25,000. The parts are encoded one by one.
std::vector<std::string_view> cut_long_text(std::string_view text, const CharacterClasses& classes);

// Keeps buffers between calls: one thread at a time. Not movable: its parts refer to one another.
class Encoder {
 public:
  // `vocabulary` is borrowed for the lifetime.
  explicit Encoder(const Vocabulary& vocabulary)
      : vocabulary_(vocabulary), pretokenizer_(classes_), pairs_(vocabulary) {}
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  // Appends the ids of `text`. Malformed UTF-8 counts as U+FFFD, one a maximal ill-formed subpart.
  // With `allow_special` the names of special tokens in the text become those tokens; without, as
  // for everything a user wrote, they are ordinary text.
  void encode(std::string_view text, bool allow_special, std::vector<std::int32_t>& ids);

 private:
  void encode_with_specials(std::string_view part, std::vector<std::int32_t>& ids);
  void encode_ordinary(std::string_view text, std::vector<std::int32_t>& ids);

  const Vocabulary& vocabulary_;
  const CharacterClasses classes_;
  Pretokenizer pretokenizer_;
  BytePairEncoder pairs_;
};

}  // namespace k3::tokenizer
