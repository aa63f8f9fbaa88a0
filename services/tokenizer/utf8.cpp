#include "services/tokenizer/utf8.h"

#include <cstdint>

namespace k3::tokenizer {
namespace {

// What a lead byte promises: the length, and the range of the second byte, which is narrower than
// 80..BF where a wider one would allow overlong forms, surrogates or values above U+10FFFF.
struct Lead {
  std::size_t bytes;  // 0: never starts a character
  std::uint8_t second_min;
  std::uint8_t second_max;
};

Lead lead_of(std::uint8_t byte) {
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Character read_utf8(std::string_view text) {
  using Kind = Utf8Character::Kind;
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  if (byte(0) < 0x80) return {Kind::kValid, 1, byte(0)};
  const Lead lead = lead_of(byte(0));
  if (lead.bytes == 0) return {Kind::kInvalid, 1, 0};
  char32_t code_point = byte(0) & (0x7Fu >> lead.bytes);
  for (std::size_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) return {Kind::kIncomplete, i, 0};
    const std::uint8_t low = i == 1 ? lead.second_min : 0x80;
    const std::uint8_t high = i == 1 ? lead.second_max : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Kind::kInvalid, i, 0};
    code_point = code_point << 6 | (byte(i) & 0x3Fu);
  }
  return {Kind::kValid, lead.bytes, code_point};
}

std::string replace_malformed(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character character = read_utf8(text);
    if (character.kind == Utf8Character::Kind::kValid) {
      valid += text.substr(0, character.bytes);
    } else {
      valid += kReplacement;
    }
    text.remove_prefix(character.bytes);
  }
  return valid;
}

}  // namespace k3::tokenizer
