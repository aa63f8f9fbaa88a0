#include "common/grammar/token_matcher.h"

#include <utility>

#include "common/base/check.h"

namespace k3::grammar {

TokenMatcher::TokenMatcher(const Grammar& grammar, std::shared_ptr<const TokenTrie> tokens)
    : automaton_(grammar.program, grammar.start),
      tokens_(std::move(tokens)),
      state_(automaton_.start()) {
  K3_CHECK(state_ != Automaton::kDead, "a grammar without texts");
}

std::span<const std::uint64_t> TokenMatcher::allowed() {
  if (const auto known = masks_.find(state_); known != masks_.end()) return known->second;
  if (masks_.size() >= kMaxMasks) masks_.clear();
  std::vector<std::uint64_t>& mask = masks_[state_];
  mask.resize(tokens_->words());
  tokens_->allowed(automaton_, state_, mask);
  return mask;
}

Status TokenMatcher::advance(std::int32_t id) {
  const Automaton::State next = tokens_->advance(automaton_, state_, id);
  if (next == Automaton::kDead) {
    return fail(ErrorCode::kUsage, "the constraint does not allow token {} here", id);
  }
  state_ = next;
  if (automaton_.states() > kMaxStates) {
    state_ = automaton_.keep_only(state_);
    masks_.clear();
  }
  return {};
}

}  // namespace k3::grammar
