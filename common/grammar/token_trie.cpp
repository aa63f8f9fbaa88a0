#include "common/grammar/token_trie.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "common/base/check.h"

namespace k3::grammar {

TokenTrie::TokenTrie(const Tokens& tokens)
    : vocab_(tokens.vocab), markup_(tokens.markup), node_of_(tokens.text.size(), kNone) {
  K3_CHECK(tokens.text.size() <= vocab_, "more tokens than ids");
  std::vector<std::int32_t> order(tokens.text.size());
  std::iota(order.begin(), order.end(), 0);
  const auto bytes = [&](std::int32_t id) { return tokens.text[static_cast<std::size_t>(id)]; };
  std::ranges::sort(order, {}, bytes);
  std::vector<std::uint32_t> path;  // nodes of the token before
  std::string_view before;
  for (const std::int32_t id : order) {
    const std::string_view token = bytes(id);
    if (token.empty()) continue;
    std::size_t common = 0;
    while (common < before.size() && common < token.size() && before[common] == token[common]) {
      ++common;
    }
    for (; path.size() > common; path.pop_back()) {
      nodes_[path.back()].end = static_cast<std::uint32_t>(nodes_.size());
    }
    for (std::size_t i = common; i < token.size(); ++i) {
      parent_.push_back(path.empty() ? kNone : path.back());
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back(
          {.depth = static_cast<std::uint16_t>(i), .byte = static_cast<std::uint8_t>(token[i])});
    }
    nodes_[path.back()].id = id;
    node_of_[static_cast<std::size_t>(id)] = path.back();
    longest_ = std::max(longest_, token.size());
    before = token;
  }
  for (const std::uint32_t node : path)
    nodes_[node].end = static_cast<std::uint32_t>(nodes_.size());
}

void TokenTrie::allowed(Automaton& automaton, Automaton::State state,
                        std::span<std::uint64_t> mask) const {
  std::ranges::fill(mask, 0);
  const auto set = [mask](std::int32_t id) {
    const auto bit = static_cast<std::size_t>(id);
    mask[bit / 64] |= std::uint64_t{1} << (bit % 64);
  };
  for (const auto& [id, symbol] : markup_) {
    if (automaton.step(state, symbol) != Automaton::kDead) set(id);
  }
  std::vector<Automaton::State> at(longest_ + 1);  // by depth
  at[0] = state;
  for (std::size_t i = 0; i < nodes_.size();) {
    const Node& node = nodes_[i];
    const Automaton::State next = automaton.step(at[node.depth], node.byte);
    if (next == Automaton::kDead) {
      i = node.end;
      continue;
    }
    at[node.depth + std::size_t{1}] = next;
    if (node.id >= 0) set(node.id);
    ++i;
  }
}

Automaton::State TokenTrie::advance(Automaton& automaton, Automaton::State state,
                                    std::int32_t id) const {
  for (const auto& [marked, symbol] : markup_) {
    if (marked == id) return automaton.step(state, symbol);
  }
  if (id < 0 || static_cast<std::size_t>(id) >= node_of_.size()) return Automaton::kDead;
  std::string bytes;
  for (std::uint32_t node = node_of_[static_cast<std::size_t>(id)]; node != kNone;
       node = parent_[node]) {
    bytes.push_back(static_cast<char>(nodes_[node].byte));
  }
  if (bytes.empty()) return Automaton::kDead;
  for (auto byte = bytes.rbegin(); byte != bytes.rend() && state != Automaton::kDead; ++byte) {
    state = automaton.step(state, static_cast<std::uint8_t>(*byte));
  }
  return state;
}

}  // namespace k3::grammar
