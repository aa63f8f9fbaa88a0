// Memory for weights under measurement: on huge pages where the system gives them.
#pragma once

#include <cstddef>

namespace k3::bench {

// Anonymous memory of at least `bytes` bytes, zero, aligned to a huge page; owned.
class HugeMemory {
 public:
  explicit HugeMemory(std::size_t bytes);  // std::bad_alloc when the system has no more
  ~HugeMemory();
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

}  // namespace k3::bench
