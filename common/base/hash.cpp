#include "common/base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "common/base/check.h"

namespace k3 {

std::uint64_t checksum(std::span<const std::byte> data) {
  return XXH3_64bits(data.data(), data.size());
}

struct Hasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  K3_CHECK(state_->xxh != nullptr, "out of memory");
  XXH3_128bits_reset(state_->xxh);
}
Hasher::~Hasher() = default;

void Hasher::add(std::span<const std::byte> data) {
  XXH3_128bits_update(state_->xxh, data.data(), data.size());
}

void Hasher::add(std::string_view text) {
  add(static_cast<std::uint64_t>(text.size()));
  add(std::as_bytes(std::span(text)));
}

void Hasher::add(std::uint64_t number) { add(std::as_bytes(std::span(&number, 1))); }

std::string Hasher::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace k3
