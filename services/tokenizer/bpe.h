// Byte-pair encoding by rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "services/tokenizer/vocabulary.h"

namespace k3::tokenizer {

// Merges the bytes of a piece into tokens: always the adjacent pair whose bytes together are the
// token of lowest rank, the leftmost on ties, until no pair is a token. O(n log n) in the bytes of
// the piece. Keeps buffers between calls: one thread at a time.
class BytePairEncoder {
 public:
  // `vocabulary` is borrowed for the lifetime.
  explicit BytePairEncoder(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  // Appends the ids of `piece`, which has fewer than 2^32 bytes, to `ids`.
  void encode(std::string_view piece, std::vector<std::int32_t>& ids);

 private:
  // A token of the piece, at the index of its first byte.
  struct Node {
    std::uint32_t begin_of_previous;
    std::uint32_t end;  // which is where the next one begins; 0 once merged into its left neighbour
    std::int32_t id;
  };

  // Two neighbours that together are a token. Out of date once no two neighbours span begin..end.
  struct Pair {
    std::int32_t rank;
    std::uint32_t begin;
    std::uint32_t end;
  };

  void offer_pair(std::string_view piece, std::uint32_t begin);
  Pair take_best();

  const Vocabulary& vocabulary_;
  std::vector<Node> nodes_;
  std::vector<Pair> heap_;
};

}  // namespace k3::tokenizer
