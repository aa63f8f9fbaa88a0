// A grammar as a program: what may follow at every point, over bytes and the markup symbols.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace k3::grammar {

// 0..255 are bytes; the symbols behind them are single tokens.
using Symbol = std::uint16_t;
inline constexpr Symbol kOpen = 256;   // <|open|>
inline constexpr Symbol kClose = 257;  // <|close|>
inline constexpr Symbol kSep = 258;    // <|sep|>
inline constexpr Symbol kEnd = 259;    // any token that ends a reply
inline constexpr Symbol kSymbols = 260;

// An instruction's index.
using Pc = std::uint32_t;
inline constexpr Pc kReturn = 0;  // the rule is complete
inline constexpr Pc kFail = 1;    // nothing may follow

// Calls open at a time at most. A subschema, and so a level of nesting, takes one.
inline constexpr std::uint32_t kMaxDepth = 128;
inline constexpr std::size_t kMaxInstructions = 1 << 20;

// Built from the back: every function returns where the new part begins, and takes what follows it.
// Past kMaxInstructions everything is kFail and full() is true. One thread.
class Program {
 public:
  enum class Op : std::uint8_t { kDone, kNever, kRange, kSplit, kJump, kCall };
  struct Instruction {
    Op op = Op::kNever;
    Symbol low = 0;  // of kRange
    Symbol high = 0;
    Pc next = kFail;
    Pc other = kFail;  // the second way of kSplit, the rule of kCall
  };

  Program();

  Pc range(Symbol low, Symbol high, Pc next);
  Pc symbol(Symbol symbol, Pc next) { return range(symbol, symbol, next); }
  Pc literal(std::string_view bytes, Pc next);
  Pc either(Pc one, Pc other);
  Pc choice(std::initializer_list<Pc> ways);
  // One of `texts`; ways that begin alike are one.
  Pc one_of(std::vector<std::string> texts, Pc next);
  Pc call(Pc rule, Pc next);
  // A place to be given its instructions later, for loops and rules: kFail until then.
  Pc reserve();
  void define(Pc reserved, Pc body);
  // A character of these code points in UTF-8; surrogates are left out.
  Pc characters(char32_t first, char32_t last, Pc next);
  // 0 to `most` symbols of low..high.
  Pc up_to(std::size_t most, Symbol low, Symbol high, Pc next);

  // The number of calls that must be open at once to get from each instruction to the end of its
  // rule, as small as can be; above kMaxDepth: kMaxDepth + 1. [instructions]
  std::vector<std::uint32_t> heights() const;

  std::span<const Instruction> instructions() const { return instructions_; }
  bool full() const { return instructions_.size() >= kMaxInstructions; }

 private:
  Pc add(const Instruction& instruction);
  Pc one_of_sorted(std::span<const std::string> texts, std::size_t prefix, Pc next);

  std::vector<Instruction> instructions_;
};

}  // namespace k3::grammar
