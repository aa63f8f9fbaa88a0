// The forms of JSON text: white space, strings, keys, any value.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/grammar/program.h"

namespace k3::grammar {

// How many of something: `most` unset means any number.
struct Count {
  std::size_t least = 0;
  std::optional<std::size_t> most;
};

// Rules shared by everything built into one program, which is borrowed. One thread.
class JsonForms {
 public:
  explicit JsonForms(Program& program);

  // Between two parts of a document: nothing, a space, or a line's end and up to 32 spaces.
  Pc gap(Pc next) { return program_.call(gap_, next); }
  // A string in quotes, of `count` code points; an escaped one counts as one.
  Pc string(const Count& count, Pc next);
  // Text as it stands, of `count` code points: any UTF-8.
  Pc raw_string(const Count& count, Pc next);
  // A JSON number as JSON writes it: up to 16 digits, 16 decimals, two digits of exponent.
  Pc number(Pc next);
  // Any JSON value: a rule to call.
  Pc any_value() const { return any_; }
  Pc any_object(Pc next);
  Pc any_array(Pc next);
  // A key without quotes: none of `names`, with no escape; `"`, `\`, control characters and those
  // in `without` do not occur.
  Pc other_key(std::vector<std::u32string> names, std::u32string without, Pc next);

 private:
  Pc repeat(Pc character, const Count& count, Pc next);
  Pc escape(Pc next);
  Pc key_behind(const std::vector<std::u32string>& names, std::size_t prefix,
                const std::u32string& without, Pc rest, Pc next);
  Pc characters_except(std::u32string points, Pc next);

  Program& program_;
  Pc gap_;
  Pc character_;      // of a JSON string, escaped or not
  Pc raw_character_;  // any
  Pc any_;
};

// `text`, which is UTF-8, as code points.
std::u32string code_points(std::string_view text);

}  // namespace k3::grammar
