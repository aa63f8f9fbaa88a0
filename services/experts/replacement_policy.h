// Which resident expert gives up its slot: the interface behind which policies are swapped, for the
// live cache and for its simulation alike.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace k3::experts {

// An expert as a number: (layer - dense layers) * experts per layer + expert.
using ExpertId = std::uint32_t;

// Told about every demand and every resident expert; one thread.
class ReplacementPolicy {
 public:
  virtual ~ReplacementPolicy() = default;

  // These experts of one layer are needed together, the most important first, resident or not.
  // Comes before the evictions and reads the demand causes.
  virtual void demand(std::span<const ExpertId> ids) = 0;
  // A resident expert is expected to be in its layer's next demand.
  virtual void expect(ExpertId id) = 0;
  // `id` became resident.
  virtual void insert(ExpertId id) = 0;
  // A resident expert was evicted.
  virtual void erase(ExpertId id) = 0;
  // The expert to evict among the resident ones for which `evictable` holds; nothing when there is
  // none.
  virtual std::optional<ExpertId> victim(const std::function<bool(ExpertId)>& evictable) const = 0;
};

// The policy of an experts service that is told of none.
inline constexpr std::string_view kDefaultPolicy = "recurrence";

// Every name make_policy() knows.
std::vector<std::string_view> policy_names();

// The policy `name` for `layers` layers of `experts_per_layer` experts each. kUsage naming the
// policies there are.
Result<std::unique_ptr<ReplacementPolicy>> make_policy(std::string_view name, std::uint32_t layers,
                                                       std::uint32_t experts_per_layer);

}  // namespace k3::experts
