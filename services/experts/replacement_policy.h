// Which resident expert gives up its slot: the interface behind which policies are swapped.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace k3::experts {

// An expert as a number: (layer - dense layers) * experts per layer + expert.
using ExpertId = std::uint32_t;

// Told about every resident expert; one thread.
class ReplacementPolicy {
 public:
  virtual ~ReplacementPolicy() = default;

  // `id` became resident.
  virtual void insert(ExpertId id) = 0;
  // A resident expert was asked for again.
  virtual void touch(ExpertId id) = 0;
  // A resident expert was evicted.
  virtual void erase(ExpertId id) = 0;
  // The expert to evict among the resident ones for which `evictable` holds; nothing when there is
  // none.
  virtual std::optional<ExpertId> victim(const std::function<bool(ExpertId)>& evictable) const = 0;
};

}  // namespace k3::experts
