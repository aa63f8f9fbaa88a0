// Shared memory for weights: one sealed memfd, written by its owner, mapped read-only by consumers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace k3 {

// The owner's side. The memfd is sealed against shrinking, growing and new writable mappings, so a
// consumer can never be surprised by SIGBUS or write a weight. Move-only; any thread may read or
// write distinct ranges of data().
class Arena {
 public:
  // Pages are committed when first touched. Errors: kFailed with the size and errno.
  static Result<Arena> create(const std::string& name, std::size_t bytes);

  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  std::span<std::byte> data() const { return data_; }
  int fd() const { return fd_.get(); }
  // Random, new for every arena: references to an earlier one are refused by consumers.
  std::uint64_t generation() const { return generation_; }

 private:
  Arena() = default;
  UniqueFd fd_;
  std::span<std::byte> data_;
  std::uint64_t generation_ = 0;
};

// What a region's owner declares it to be. The numbers travel on the lifeline.
enum class RegionKind : std::uint32_t {
  kMemory = 0,  // a memfd sealed against shrinking: what is cut short ends its readers with SIGBUS
  kFile = 1,    // a regular file, which nothing can seal: it is trusted not to be cut short
};

// The consumer's side: a read-only mapping of `bytes` of a descriptor received from the owner.
class MappedRegion {
 public:
  // Errors: kFailed when the descriptor is not what `kind` says, when it can write to a file, when
  // it holds fewer than `bytes` (both numbers), or when mmap fails.
  static Result<MappedRegion> map(UniqueFd fd, std::size_t bytes,
                                  RegionKind kind = RegionKind::kMemory);

  MappedRegion(MappedRegion&& other) noexcept;
  MappedRegion& operator=(MappedRegion&& other) noexcept;
  ~MappedRegion();

  std::span<const std::byte> data() const { return data_; }

 private:
  MappedRegion() = default;
  std::span<const std::byte> data_;
};

}  // namespace k3
