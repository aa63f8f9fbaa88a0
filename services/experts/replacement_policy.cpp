#include "services/experts/replacement_policy.h"

#include "services/experts/lru_policy.h"
#include "services/experts/recurrence_policy.h"

namespace k3::experts {

std::vector<std::string_view> policy_names() { return {"lru", "recurrence"}; }

Result<std::unique_ptr<ReplacementPolicy>> make_policy(std::string_view name, std::uint32_t layers,
                                                       std::uint32_t experts_per_layer) {
  if (name == "lru") return std::make_unique<LruPolicy>();
  if (name == "recurrence") return std::make_unique<RecurrencePolicy>(layers, experts_per_layer);
  return fail(ErrorCode::kUsage, "policy \"{}\": expected lru or recurrence", name);
}

}  // namespace k3::experts
