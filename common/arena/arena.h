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

// The consumer's side: a read-only mapping of `bytes` of a descriptor received from the owner.
class MappedRegion {
 public:
  // Takes memory sealed against shrinking, since what is cut short under its readers ends them with
  // SIGBUS; or a file on disk, which nothing can seal: it is trusted not to be cut short. Errors:
  // kFailed when it is neither, when the descriptor is smaller than `bytes` (both numbers), or when
  // mmap fails.
  static Result<MappedRegion> map(UniqueFd fd, std::size_t bytes);

  MappedRegion(MappedRegion&& other) noexcept;
  MappedRegion& operator=(MappedRegion&& other) noexcept;
  ~MappedRegion();

  std::span<const std::byte> data() const { return data_; }

 private:
  MappedRegion() = default;
  std::span<const std::byte> data_;
};

}  // namespace k3
