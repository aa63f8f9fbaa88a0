// Reads UTF-8 that may be malformed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace k3::tokenizer {

// U+FFFD, which stands for what could not be decoded.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// What lies at the start of some bytes.
struct Utf8Character {
  enum class Kind {
    kValid,
    kInvalid,     // a maximal ill-formed subpart (Unicode, section 3.9): one U+FFFD
    kIncomplete,  // all remaining bytes, which more bytes could turn into a character
  };
  Kind kind = Kind::kValid;
  std::size_t bytes = 1;    // 1 to 4; of an incomplete one 1 to 3
  char32_t code_point = 0;  // when valid
};

// Reads the first character of `text`, which is not empty.
Utf8Character read_utf8(std::string_view text);

// `text` with every malformed part replaced by U+FFFD; valid text comes back unchanged.
std::string replace_malformed(std::string_view text);

}  // namespace k3::tokenizer
