#include "services/tokenizer/bpe.h"

#include <algorithm>
#include <optional>

namespace k3::tokenizer {
namespace {

// Heap order: the lowest rank on top, then the leftmost.
constexpr auto kWorse = [](const auto& a, const auto& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.begin > b.begin;
};

}  // namespace

void BytePairEncoder::encode(std::string_view piece, std::vector<std::int32_t>& ids) {
  if (const auto whole = vocabulary_.rank(piece)) {
    ids.push_back(*whole);
    return;
  }
  const auto size = static_cast<std::uint32_t>(piece.size());
  nodes_.clear();
  heap_.clear();
  for (std::uint32_t i = 0; i < size; ++i) {
    nodes_.push_back({i == 0 ? 0 : i - 1, i + 1, *vocabulary_.rank(piece.substr(i, 1))});
  }
  for (std::uint32_t i = 0; i < size; ++i) offer_pair(piece, i);

  while (!heap_.empty()) {
    const Pair pair = take_best();
    Node& left = nodes_[pair.begin];
    if (left.end == 0 || left.end >= size) continue;
    Node& right = nodes_[left.end];
    if (right.end != pair.end) continue;
    right.end = 0;
    left.end = pair.end;
    left.id = pair.rank;
    if (pair.end < size) nodes_[pair.end].begin_of_previous = pair.begin;
    offer_pair(piece, pair.begin);
    if (pair.begin > 0) offer_pair(piece, left.begin_of_previous);
  }
  for (std::uint32_t i = 0; i < size; i = nodes_[i].end) ids.push_back(nodes_[i].id);
}

// Puts the token at `begin` and the next one on the heap if together they are a token.
void BytePairEncoder::offer_pair(std::string_view piece, std::uint32_t begin) {
  const std::uint32_t middle = nodes_[begin].end;
  if (middle >= piece.size()) return;
  const std::uint32_t end = nodes_[middle].end;
  if (end - begin > vocabulary_.longest_token_bytes()) return;
  if (const auto rank = vocabulary_.rank(piece.substr(begin, end - begin))) {
    heap_.push_back({*rank, begin, end});
    std::push_heap(heap_.begin(), heap_.end(), kWorse);
  }
}

BytePairEncoder::Pair BytePairEncoder::take_best() {
  std::pop_heap(heap_.begin(), heap_.end(), kWorse);
  const Pair best = heap_.back();
  heap_.pop_back();
  return best;
}

}  // namespace k3::tokenizer
