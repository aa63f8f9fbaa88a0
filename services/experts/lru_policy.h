// Evicts the expert that was asked for the longest time ago.
#pragma once

#include <list>
#include <optional>
#include <unordered_map>

#include "services/experts/replacement_policy.h"

namespace k3::experts {

class LruPolicy final : public ReplacementPolicy {
 public:
  void demand(std::span<const ExpertId> ids) override;
  void expect(ExpertId id) override;  // counts as asked for
  void insert(ExpertId id) override;
  void erase(ExpertId id) override;
  std::optional<ExpertId> victim(const std::function<bool(ExpertId)>& evictable) const override;

 private:
  std::list<ExpertId> order_;  // oldest first
  std::unordered_map<ExpertId, std::list<ExpertId>::iterator> places_;
};

}  // namespace k3::experts
