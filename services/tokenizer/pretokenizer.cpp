#include "services/tokenizer/pretokenizer.h"

#include "services/tokenizer/utf8.h"

namespace k3::tokenizer {

const std::vector<std::string_view>& Pretokenizer::split(std::string_view text) {
  classify(text);
  pieces_.clear();
  const Index count = class_of_.size();
  for (Index start = 0; start < count;) {
    const Index end = end_of_piece(start);
    pieces_.push_back(text.substr(offset_of_[start], offset_of_[end] - offset_of_[start]));
    start = end;
  }
  return pieces_;
}

void Pretokenizer::classify(std::string_view text) {
  text_ = text;
  class_of_.clear();
  offset_of_.clear();
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Character character = read_utf8(text.substr(at));
    class_of_.push_back(classes_[character.code_point]);
    offset_of_.push_back(static_cast<std::uint32_t>(at));
    at += character.bytes;
  }
  offset_of_.push_back(static_cast<std::uint32_t>(text.size()));
}

Pretokenizer::Index Pretokenizer::end_of_piece(Index start) const {
  if (is(start, kHan)) return skip(start, kHan);
  if (const Index end = match_word(start); end != start) return end;
  if (is(start, kNumber)) return skip(start, kNumber, 3);
  if (const Index end = match_symbols(start); end != start) return end;
  return match_white_space(start);
}

Pretokenizer::Index Pretokenizer::match_word(Index start) const {
  const bool may_be_prefix = !is(start, kNewline | kLetter | kNumber);
  const auto match = [&](auto body) {
    if (may_be_prefix) {
      const Index end = (this->*body)(start + 1);
      if (end != start + 1) return skip_contraction(end);
    }
    const Index end = (this->*body)(start);
    return end == start ? start : skip_contraction(end);
  };
  if (const Index end = match(&Pretokenizer::match_ending_in_lower); end != start) return end;
  return match(&Pretokenizer::match_starting_with_upper);
}

Pretokenizer::Index Pretokenizer::match_ending_in_lower(Index start) const {
  const Index run_end = skip(start, kUpper);
  if (is(run_end, kLower)) return skip(run_end, kLower);
  // U* gives characters back until L+ finds one; it finds no second, or U* would have kept more.
  for (Index last = run_end; last > start; --last) {
    if (is(last - 1, kLower)) return last;
  }
  return start;
}

Pretokenizer::Index Pretokenizer::match_starting_with_upper(Index start) const {
  const Index run_end = skip(start, kUpper);
  return run_end == start ? start : skip(run_end, kLower);
}

Pretokenizer::Index Pretokenizer::match_symbols(Index start) const {
  const auto skip_symbols = [&](Index i) {
    while (i < class_of_.size() && !is(i, kSpace | kLetter | kNumber)) ++i;
    return i;
  };
  const Index body = byte_at(start) == ' ' ? start + 1 : start;
  const Index end = skip_symbols(body);
  return end == body ? start : skip(end, kNewline);
}

Pretokenizer::Index Pretokenizer::match_white_space(Index start) const {
  const Index run_end = skip(start, kSpace);
  for (Index end = run_end; end > start; --end) {
    if (is(end - 1, kNewline)) return end;
  }
  const bool at_end_of_text = run_end == class_of_.size();
  // Before anything else a run of two or more leaves its last character to the next piece.
  return at_end_of_text || run_end - start == 1 ? run_end : run_end - 1;
}

Pretokenizer::Index Pretokenizer::skip_contraction(Index start) const {
  if (byte_at(start) != '\'') return start;
  const auto lower = [&](Index i) { return static_cast<char>(byte_at(i) | 0x20); };
  const char first = lower(start + 1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return start + 2;
  const char second = lower(start + 2);
  if ((first == 'r' || first == 'v') && second == 'e') return start + 3;
  if (first == 'l' && second == 'l') return start + 3;
  // Case folding also makes U+017F (long s) an s.
  if (start + 1 < class_of_.size() && text_.substr(offset_of_[start + 1], 2) == "\xC5\xBF") {
    return start + 2;
  }
  return start;
}

Pretokenizer::Index Pretokenizer::skip(Index start, CharacterClass classes,
                                       std::size_t limit) const {
  Index i = start;
  while (i - start < limit && is(i, classes)) ++i;
  return i;
}

}  // namespace k3::tokenizer
