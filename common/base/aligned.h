// Vectors whose elements begin at a cache line.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace k3 {

inline constexpr std::size_t kCacheLineBytes = 64;

// Allocates at the beginning of a cache line. Stateless: any two are equal.
template <class T>
struct CacheLineAllocator {
  using value_type = T;

  CacheLineAllocator() = default;
  template <class U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{kCacheLineBytes}));
  }
  void deallocate(T* memory, std::size_t) {
    ::operator delete (memory, std::align_val_t{kCacheLineBytes});
  }
  friend bool operator==(const CacheLineAllocator&, const CacheLineAllocator&) { return true; }
};

// Activations: a kernel that loads whole cache lines meets no line twice.
using Floats = std::vector<float, CacheLineAllocator<float>>;

}  // namespace k3
