// Follows a reply token by token and says which tokens may come next.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/result.h"
#include "common/grammar/reply_grammar.h"
#include "common/grammar/token_trie.h"

namespace k3::grammar {

// Memory: states and masks are kept up to kMaxStates and kMaxMasks, about 12 MB with the released
// vocabulary; a step may pass the first by what one mask needs. One thread.
class TokenMatcher {
 public:
  static constexpr std::size_t kMaxStates = 4096;
  static constexpr std::size_t kMaxMasks = 128;

  TokenMatcher(const Grammar& grammar, std::shared_ptr<const TokenTrie> tokens);

  // Bit id % 64 of word id / 64: token `id` may follow. Never empty before the reply's end.
  // Valid until the next call.
  std::span<const std::uint64_t> allowed();
  // `id` follows. kUsage, and nothing changes, when it may not.
  Status advance(std::int32_t id);
  // Whether the reply has ended.
  bool ended() const { return automaton_.accepting(state_); }

 private:
  Automaton automaton_;
  std::shared_ptr<const TokenTrie> tokens_;
  Automaton::State state_;
  std::unordered_map<Automaton::State, std::vector<std::uint64_t>> masks_;
};

}  // namespace k3::grammar
