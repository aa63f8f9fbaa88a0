#include "services/tokenizer/encoder.h"

#include <cstddef>
#include <optional>
#include <string>

#include "services/tokenizer/utf8.h"

namespace k3::tokenizer {
namespace {

constexpr std::size_t kBlockCharacters = 400'000;
constexpr std::size_t kRunCharacters = 25'000;

}  // namespace

std::vector<std::string_view> cut_long_text(std::string_view text,
                                            const CharacterClasses& classes) {
  if (text.empty()) return {};
  if (text.size() <= kRunCharacters) return {text};
  std::vector<std::string_view> parts;
  std::size_t part_start = 0;
  std::size_t block_characters = 0;
  std::size_t run_characters = 0;
  bool run_is_blank = false;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Character character = read_utf8(text.substr(at));
    const bool blank = (classes[character.code_point] & kBlank) != 0;
    const bool block_full = block_characters == kBlockCharacters;
    const bool same_run = !block_full && run_characters > 0 && blank == run_is_blank;
    const bool run_full = same_run && run_characters == kRunCharacters;
    if (block_full || run_full) {
      parts.push_back(text.substr(part_start, at - part_start));
      part_start = at;
    }
    block_characters = block_full ? 1 : block_characters + 1;
    run_characters = same_run && !run_full ? run_characters + 1 : 1;
    run_is_blank = blank;
    at += character.bytes;
  }
  parts.push_back(text.substr(part_start));
  return parts;
}

void Encoder::encode(std::string_view text, bool allow_special, std::vector<std::int32_t>& ids) {
  const std::string valid = replace_malformed(text);
  for (const std::string_view part : cut_long_text(valid, classes_)) {
    if (allow_special) {
      encode_with_specials(part, ids);
    } else {
      encode_ordinary(part, ids);
    }
  }
}

void Encoder::encode_with_specials(std::string_view part, std::vector<std::int32_t>& ids) {
  while (const std::optional<Vocabulary::Found> found = vocabulary_.find_special(part)) {
    encode_ordinary(part.substr(0, found->offset), ids);
    ids.push_back(found->id);
    part.remove_prefix(found->offset + found->bytes);
  }
  encode_ordinary(part, ids);
}

void Encoder::encode_ordinary(std::string_view text, std::vector<std::int32_t>& ids) {
  for (const std::string_view piece : pretokenizer_.split(text)) pairs_.encode(piece, ids);
}

}  // namespace k3::tokenizer
