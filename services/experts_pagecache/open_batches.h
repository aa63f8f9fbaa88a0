// Which batches are open, what each still waits for, and what it has leased.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "common/base/result.h"

namespace k3::pagecache {

// Pure bookkeeping; one thread.
class OpenBatches {
 public:
  using ClientId = std::uint64_t;
  using Key = std::uint64_t;  // never used again, unlike a client's batch numbers

  // Batches a client may have open at once.
  static constexpr std::size_t kMost = 1024;

  struct Batch {
    ClientId client = 0;
    std::uint64_t number = 0;
    std::size_t leases = 0;
  };

  // kUsage when the number is open or too many are.
  Result<Key> open(ClientId client, std::uint64_t number);
  // Nothing happens when it is not open.
  void close(ClientId client, std::uint64_t number);
  void close_all(ClientId client);
  // Null when it was closed.
  Batch* find(Key key);
  // Over all batches.
  std::uint64_t leases() const;

 private:
  std::map<std::pair<ClientId, std::uint64_t>, Key> keys_;
  std::map<Key, Batch> batches_;
  Key next_ = 0;
};

}  // namespace k3::pagecache
