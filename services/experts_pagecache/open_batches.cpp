#include "services/experts_pagecache/open_batches.h"

#include <iterator>
#include <limits>

namespace k3::pagecache {

Result<OpenBatches::Key> OpenBatches::open(ClientId client, std::uint64_t number) {
  if (keys_.contains({client, number})) {
    return fail(ErrorCode::kUsage, "batch {}: already open, expected a new number", number);
  }
  const auto first = keys_.lower_bound({client, 0});
  const auto last = keys_.upper_bound({client, std::numeric_limits<std::uint64_t>::max()});
  if (static_cast<std::size_t>(std::distance(first, last)) >= kMost) {
    return fail(ErrorCode::kUsage, "batch {}: {} batches are open already, the most allowed",
                number, kMost);
  }
  const Key key = next_++;
  keys_[{client, number}] = key;
  batches_[key] = {client, number, 0};
  return key;
}

void OpenBatches::close(ClientId client, std::uint64_t number) {
  const auto node = keys_.extract(std::pair(client, number));
  if (!node.empty()) batches_.erase(node.mapped());
}

void OpenBatches::close_all(ClientId client) {
  while (true) {
    const auto next = keys_.lower_bound({client, 0});
    if (next == keys_.end() || next->first.first != client) return;
    close(client, next->first.second);
  }
}

OpenBatches::Batch* OpenBatches::find(Key key) {
  const auto found = batches_.find(key);
  return found == batches_.end() ? nullptr : &found->second;
}

std::uint64_t OpenBatches::leases() const {
  std::uint64_t sum = 0;
  for (const auto& [key, batch] : batches_) sum += batch.leases;
  return sum;
}

}  // namespace k3::pagecache
