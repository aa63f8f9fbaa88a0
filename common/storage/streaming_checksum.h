// XXH3-64 over bytes that arrive in pieces; equals checksum() of the pieces joined.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/base/check.h"

namespace k3 {

// One thread.
class StreamingChecksum {
 public:
  StreamingChecksum() : state_(XXH3_createState()) {
    K3_CHECK(state_ != nullptr, "out of memory");
    XXH3_64bits_reset(state_.get());
  }

  void add(std::span<const std::byte> data) {
    XXH3_64bits_update(state_.get(), data.data(), data.size());
  }

  std::uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

}  // namespace k3
