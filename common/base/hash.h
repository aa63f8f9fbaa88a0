// XXH3 hashes: checksums of stored data and the model fingerprint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace k3 {

// XXH3-64 of one buffer: the checksum of units, experts and index files.
std::uint64_t checksum(std::span<const std::byte> data);

// Streaming XXH3-128, printed as 32 hexadecimal digits. One thread.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void add(std::span<const std::byte> data);
  void add(std::string_view text);  // length-prefixed, so that ("ab","c") differs from ("a","bc")
  void add(std::uint64_t number);
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace k3
