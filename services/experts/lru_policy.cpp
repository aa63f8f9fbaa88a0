#include "services/experts/lru_policy.h"

#include <algorithm>

namespace k3::experts {

void LruPolicy::insert(ExpertId id) { places_[id] = order_.insert(order_.end(), id); }

void LruPolicy::demand(std::span<const ExpertId> ids) {
  for (const ExpertId id : ids) {
    if (places_.contains(id)) expect(id);
  }
}

void LruPolicy::expect(ExpertId id) { order_.splice(order_.end(), order_, places_.at(id)); }

void LruPolicy::erase(ExpertId id) {
  const auto place = places_.find(id);
  order_.erase(place->second);
  places_.erase(place);
}

std::optional<ExpertId> LruPolicy::victim(const std::function<bool(ExpertId)>& evictable) const {
  const auto found = std::find_if(order_.begin(), order_.end(), evictable);
  return found == order_.end() ? std::nullopt : std::optional(*found);
}

}  // namespace k3::experts
