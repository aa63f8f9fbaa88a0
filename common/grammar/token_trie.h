// The tokens of a vocabulary by their bytes, to find all that may follow at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "common/grammar/automaton.h"

namespace k3::grammar {

// What the tokens are to a grammar: ids 0..text.size()-1 are these bytes, `markup` are symbols; all
// other ids never occur.
struct Tokens {
  std::span<const std::string_view> text;
  std::vector<std::pair<std::int32_t, Symbol>> markup;
  std::size_t vocab = 0;  // ids of the model's head
};

// Immutable; any thread. Memory: 12 bytes a node, about 5 MB for 163,584 tokens.
class TokenTrie {
 public:
  // Bytes are copied.
  explicit TokenTrie(const Tokens& tokens);

  std::size_t words() const { return (vocab_ + 63) / 64; }
  // Sets bit id % 64 of mask[id / 64] for every token all of whose symbols `automaton` takes from
  // `state` on, clears the others. `mask` has words() words.
  void allowed(Automaton& automaton, Automaton::State state, std::span<std::uint64_t> mask) const;
  // The state behind token `id`, or kDead.
  Automaton::State advance(Automaton& automaton, Automaton::State state, std::int32_t id) const;

 private:
  struct Node {
    std::int32_t id = -1;   // the token that ends here
    std::uint32_t end = 0;  // behind the last node below this one
    std::uint16_t depth = 0;
    std::uint8_t byte = 0;
  };

  std::size_t vocab_;
  std::vector<std::pair<std::int32_t, Symbol>> markup_;
  std::vector<Node> nodes_;             // in depth-first order
  std::vector<std::uint32_t> node_of_;  // by id, of text tokens; kNone for an empty one
  std::vector<std::uint32_t> parent_;   // by node; kNone at the top
  std::size_t longest_ = 0;
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
};

}  // namespace k3::grammar
