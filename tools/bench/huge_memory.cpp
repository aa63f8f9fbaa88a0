#include "tools/bench/huge_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace k3::bench {

namespace {

constexpr std::size_t kHugePage = 2 * 1024 * 1024;

}  // namespace

HugeMemory::HugeMemory(std::size_t bytes)
    : bytes_((bytes + kHugePage - 1) / kHugePage * kHugePage),
      data_(static_cast<std::byte*>(std::aligned_alloc(kHugePage, bytes_))) {
  if (data_ == nullptr) throw std::bad_alloc();
  ::madvise(data_, bytes_, MADV_HUGEPAGE);  // without them it is only slower
  std::memset(data_, 0, bytes_);
}

HugeMemory::~HugeMemory() { std::free(data_); }

}  // namespace k3::bench
