#include "common/grammar/program.h"

#include <algorithm>
#include <array>

#include "common/base/check.h"

namespace k3::grammar {
namespace {

struct Utf8 {
  std::array<std::uint8_t, 4> bytes{};
  std::size_t size = 0;
};

Utf8 encode(char32_t point) {
  const auto tail = [point](int shift) {
    return static_cast<std::uint8_t>(0x80 | ((point >> shift) & 0x3F));
  };
  if (point < 0x80) return {{static_cast<std::uint8_t>(point)}, 1};
  if (point < 0x800) return {{static_cast<std::uint8_t>(0xC0 | (point >> 6)), tail(0)}, 2};
  if (point < 0x10000) {
    return {{static_cast<std::uint8_t>(0xE0 | (point >> 12)), tail(6), tail(0)}, 3};
  }
  return {{static_cast<std::uint8_t>(0xF0 | (point >> 18)), tail(12), tail(6), tail(0)}, 4};
}

}  // namespace

Program::Program() {
  instructions_.push_back({.op = Op::kDone});
  instructions_.push_back({.op = Op::kNever});
}

Pc Program::add(const Instruction& instruction) {
  if (full()) return kFail;
  instructions_.push_back(instruction);
  return static_cast<Pc>(instructions_.size() - 1);
}

Pc Program::range(Symbol low, Symbol high, Pc next) {
  if (low > high || next == kFail) return kFail;
  return add({.op = Op::kRange, .low = low, .high = high, .next = next});
}

Pc Program::literal(std::string_view bytes, Pc next) {
  for (auto byte = bytes.rbegin(); byte != bytes.rend(); ++byte) {
    next = symbol(static_cast<std::uint8_t>(*byte), next);
  }
  return next;
}

Pc Program::either(Pc one, Pc other) {
  if (one == kFail || one == other) return other;
  if (other == kFail) return one;
  return add({.op = Op::kSplit, .next = one, .other = other});
}

Pc Program::choice(std::initializer_list<Pc> ways) {
  Pc all = kFail;
  for (const Pc way : ways) all = either(all, way);
  return all;
}

Pc Program::one_of(std::vector<std::string> texts, Pc next) {
  std::ranges::sort(texts);
  return one_of_sorted(texts, 0, next);
}

Pc Program::one_of_sorted(std::span<const std::string> texts, std::size_t prefix, Pc next) {
  // A single text in a loop: the recursion is as deep as texts have places where they part.
  if (texts.empty()) return kFail;
  if (texts.front() == texts.back()) return literal(texts.front().substr(prefix), next);
  const std::string& first = texts.front();
  const std::string& last = texts.back();
  std::size_t common = prefix;
  while (common < first.size() && common < last.size() && first[common] == last[common]) ++common;
  Pc all = kFail;
  while (!texts.empty() && texts.front().size() == common) {
    all = next;
    texts = texts.subspan(1);
  }
  while (!texts.empty()) {
    const char byte = texts.front()[common];
    const auto end =
        std::ranges::find_if(texts, [&](const std::string& text) { return text[common] != byte; });
    const auto count = static_cast<std::size_t>(end - texts.begin());
    const Pc rest = one_of_sorted(texts.first(count), common + 1, next);
    all = either(all, symbol(static_cast<std::uint8_t>(byte), rest));
    texts = texts.subspan(count);
  }
  return literal(first.substr(prefix, common - prefix), all);
}

Pc Program::call(Pc rule, Pc next) {
  if (rule == kFail || next == kFail) return kFail;
  return add({.op = Op::kCall, .next = next, .other = rule});
}

Pc Program::reserve() { return add({.op = Op::kJump, .next = kFail}); }

void Program::define(Pc reserved, Pc body) {
  if (reserved == kFail) return;
  K3_CHECK(instructions_[reserved].op == Op::kJump, "not reserved");
  instructions_[reserved].next = body;
}

Pc Program::characters(char32_t first, char32_t last, Pc next) {
  // Cut where the encoding changes its length, around the surrogates, and where the trailing bytes
  // are not free; what is left is one range a byte.
  for (const char32_t limit : {0x7FU, 0x7FFU, 0xFFFFU}) {
    if (first <= limit && last > limit) {
      return either(characters(first, limit, next), characters(limit + 1, last, next));
    }
  }
  if (first > last) return kFail;
  if (first <= 0xDFFF && last >= 0xD800) {
    const Pc below = first < 0xD800 ? characters(first, 0xD7FF, next) : kFail;
    return either(below, last > 0xDFFF ? characters(0xE000, last, next) : kFail);
  }
  for (const char32_t low : {0x3FU, 0xFFFU, 0x3FFFFU}) {
    if (last < 0x80 || (first & ~low) == (last & ~low)) continue;
    if ((first & low) != 0) {
      return either(characters(first, first | low, next),
                    characters((first | low) + 1, last, next));
    }
    if ((last & low) != low) {
      return either(characters(first, (last & ~low) - 1, next),
                    characters(last & ~low, last, next));
    }
  }
  const Utf8 from = encode(first);
  const Utf8 to = encode(last);
  for (std::size_t i = from.size; i-- > 0;) next = range(from.bytes[i], to.bytes[i], next);
  return next;
}

Pc Program::up_to(std::size_t most, Symbol low, Symbol high, Pc next) {
  Pc all = next;
  for (std::size_t i = 0; i < most; ++i) all = either(next, range(low, high, all));
  return all;
}

std::vector<std::uint32_t> Program::heights() const {
  std::vector<std::uint32_t> heights(instructions_.size(), kMaxDepth + 1);
  heights[kReturn] = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < instructions_.size(); ++i) {
      const Instruction& at = instructions_[i];
      std::uint32_t height = heights[at.next];
      if (at.op == Op::kDone || at.op == Op::kNever) continue;
      if (at.op == Op::kSplit) height = std::min(height, heights[at.other]);
      if (at.op == Op::kCall) {
        height = std::max(height, std::min(heights[at.other] + 1, kMaxDepth + 1));
      }
      if (height < heights[i]) {
        heights[i] = height;
        changed = true;
      }
    }
  }
  return heights;
}

}  // namespace k3::grammar
