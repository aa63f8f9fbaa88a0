#include "common/grammar/json_forms.h"

#include <algorithm>
#include <set>

namespace k3::grammar {

std::u32string code_points(std::string_view text) {
  std::u32string points;
  for (const char byte : text) {
    const auto value = static_cast<unsigned char>(byte);
    if ((value & 0xC0) == 0x80 && !points.empty()) {
      points.back() = (points.back() << 6) | (value & 0x3F);
    } else {
      points.push_back(value < 0x80   ? value
                       : value < 0xE0 ? value & 0x1F
                       : value < 0xF0 ? value & 0x0F
                                      : value & 0x07);
    }
  }
  return points;
}

JsonForms::JsonForms(Program& program) : program_(program) {
  gap_ = program_.choice({kReturn, program_.symbol(' ', kReturn),
                          program_.symbol('\n', program_.up_to(32, ' ', ' ', kReturn))});
  raw_character_ = program_.characters(0, 0x10FFFF, kReturn);
  character_ = program_.choice({characters_except(U"\"\\", kReturn), escape(kReturn)});
  any_ = program_.reserve();
  Pc any = program_.one_of({"true", "false", "null"}, kReturn);
  any = program_.choice(
      {any, string({}, kReturn), number(kReturn), any_object(kReturn), any_array(kReturn)});
  program_.define(any_, any);
}

Pc JsonForms::escape(Pc next) {
  const auto hex = [this](std::string_view digits, Pc after) {
    Pc all = kFail;
    for (const char digit : digits) {
      all = program_.either(all, program_.symbol(static_cast<std::uint8_t>(digit), after));
    }
    return all;
  };
  constexpr std::string_view kAll = "0123456789abcdefABCDEF";
  const Pc one = hex(kAll, next);
  const Pc two = hex(kAll, one);
  const Pc three = hex(kAll, two);
  const Pc low = program_.literal("\\u", hex("dD", hex("cdefCDEF", two)));
  const Pc high = hex("89abAB", hex(kAll, hex(kAll, low)));
  const Pc unit = program_.choice(
      {hex("0123456789abcefABCEF", three), hex("dD", program_.either(hex("01234567", two), high))});
  return program_.symbol('\\',
                         program_.either(hex("\"\\/bfnrt", next), program_.symbol('u', unit)));
}

Pc JsonForms::repeat(Pc character, const Count& count, Pc next) {
  Pc rest = next;
  if (count.most) {
    if (*count.most < count.least) return kFail;
    for (std::size_t i = count.least; i < *count.most && !program_.full(); ++i) {
      rest = program_.either(next, program_.call(character, rest));
    }
  } else {
    const Pc loop = program_.reserve();
    program_.define(loop, program_.either(next, program_.call(character, loop)));
    rest = loop;
  }
  for (std::size_t i = 0; i < count.least && !program_.full(); ++i) {
    rest = program_.call(character, rest);
  }
  return rest;
}

Pc JsonForms::string(const Count& count, Pc next) {
  return program_.symbol('"', repeat(character_, count, program_.symbol('"', next)));
}

Pc JsonForms::raw_string(const Count& count, Pc next) {
  return repeat(raw_character_, count, next);
}

Pc JsonForms::number(Pc next) {
  const auto digits = [this](std::size_t most, Pc after) {
    return program_.range('0', '9', program_.up_to(most - 1, '0', '9', after));
  };
  const Pc power = digits(2, next);
  const Pc sign =
      program_.choice({power, program_.symbol('+', power), program_.symbol('-', power)});
  const Pc exponent =
      program_.choice({next, program_.symbol('e', sign), program_.symbol('E', sign)});
  const Pc fraction = program_.either(exponent, program_.symbol('.', digits(16, exponent)));
  const Pc whole =
      program_.either(program_.symbol('0', fraction),
                      program_.range('1', '9', program_.up_to(15, '0', '9', fraction)));
  return program_.either(whole, program_.symbol('-', whole));
}

Pc JsonForms::any_object(Pc next) {
  const Pc end = program_.symbol('}', next);
  const Pc member = program_.reserve();
  const Pc more = program_.either(gap(end), program_.symbol(',', gap(member)));
  const Pc value = program_.symbol(':', gap(program_.call(any_, more)));
  program_.define(member, string({}, value));
  return program_.symbol('{', gap(program_.either(end, member)));
}

Pc JsonForms::any_array(Pc next) {
  const Pc end = program_.symbol(']', next);
  const Pc item = program_.reserve();
  const Pc more = program_.either(gap(end), program_.symbol(',', gap(item)));
  program_.define(item, program_.call(any_, more));
  return program_.symbol('[', gap(program_.either(end, item)));
}

Pc JsonForms::characters_except(std::u32string points, Pc next) {
  std::ranges::sort(points);
  Pc all = kFail;
  char32_t first = 0x20;
  for (const char32_t point : points) {
    if (point > first) all = program_.either(all, program_.characters(first, point - 1, next));
    first = std::max<char32_t>(first, point + 1);
  }
  return program_.either(all, program_.characters(first, 0x10FFFF, next));
}

Pc JsonForms::other_key(std::vector<std::u32string> names, std::u32string without, Pc next) {
  std::ranges::sort(names);
  without += U"\"\\";
  const Pc rest = program_.reserve();
  program_.define(rest, program_.either(next, characters_except(without, rest)));
  return key_behind(names, 0, without, rest, next);
}

// `names` are those that begin with what has been read, `prefix` code points.
Pc JsonForms::key_behind(const std::vector<std::u32string>& names, std::size_t prefix,
                         const std::u32string& without, Pc rest, Pc next) {
  if (names.empty()) return rest;
  Pc all = kFail;
  bool is_name = false;
  std::u32string points = without;
  for (auto name = names.begin(); name != names.end();) {
    if (name->size() == prefix) {
      is_name = true;
      ++name;
      continue;
    }
    const char32_t point = (*name)[prefix];
    std::vector<std::u32string> longer;
    for (; name != names.end() && (*name)[prefix] == point; ++name) longer.push_back(*name);
    points.push_back(point);
    if (point < 0x20 || without.find(point) != std::u32string::npos) continue;
    const Pc behind = key_behind(longer, prefix + 1, without, rest, next);
    all = program_.either(all, program_.characters(point, point, behind));
  }
  if (!is_name) all = program_.either(all, next);
  return program_.either(all, characters_except(points, rest));
}

}  // namespace k3::grammar
