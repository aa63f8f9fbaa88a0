#include "services/experts/recurrence_policy.h"

#include <cmath>
#include <limits>

namespace k3::experts {
namespace {

constexpr std::int64_t kOne = std::int64_t{1} << 36;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min() / 2;  // a score of 0
constexpr std::int64_t kSoon = std::numeric_limits<std::int64_t>::max() / 2;

}  // namespace

RecurrencePolicy::RecurrencePolicy(std::uint32_t layers, std::uint32_t experts_per_layer)
    : experts_per_layer_(experts_per_layer),
      experts_(std::size_t{layers} * experts_per_layer, Expert{kNever}),
      layers_(layers) {}

void RecurrencePolicy::demand(std::span<const ExpertId> ids) {
  if (ids.empty()) return;
  demanded_ = ids.front() / experts_per_layer_;
  Layer& layer = layers_[demanded_];
  for (const ExpertId id : std::exchange(layer.expected, {})) move(id, experts_[id].rank, false);
  layer.clock += kOne / 2;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double weight = 1 - kFall * static_cast<double>(i) / static_cast<double>(ids.size());
    const auto age = static_cast<double>(experts_[ids[i]].rank - layer.clock);
    const double score = std::exp(age / static_cast<double>(kOne)) + weight;
    move(ids[i], layer.clock + std::llround(std::log(score) * static_cast<double>(kOne)), false);
  }
}

void RecurrencePolicy::expect(ExpertId id) {
  if (experts_[id].expected) return;
  move(id, experts_[id].rank, true);
  layer_of(id).expected.push_back(id);
}

void RecurrencePolicy::insert(ExpertId id) {
  ++resident_;
  experts_[id].resident = true;
  layer_of(id).resident.insert(place(id));
}

void RecurrencePolicy::erase(ExpertId id) {
  layer_of(id).resident.erase(place(id));
  experts_[id].resident = false;
  --resident_;
}

std::optional<ExpertId> RecurrencePolicy::victim(
    const std::function<bool(ExpertId)>& evictable) const {
  if (resident_ == 0) return std::nullopt;
  const Layer& demanded = layers_[demanded_];
  if (demanded.resident.size() >= resident_ / layers_.size()) {
    if (const std::optional<ExpertId> id = lowest(demanded, evictable)) return id;
  }
  std::optional<ExpertId> best;
  std::size_t most = 0;
  for (const Layer& layer : layers_) {
    if (layer.resident.size() <= most) continue;
    const std::optional<ExpertId> id = lowest(layer, evictable);
    if (!id) continue;
    best = id;
    most = layer.resident.size();
  }
  return best;
}

std::optional<ExpertId> RecurrencePolicy::lowest(const Layer& layer, const Evictable& evictable) {
  for (const auto& [rank, id] : layer.resident) {
    if (evictable(id)) return id;
  }
  return std::nullopt;
}

std::pair<RecurrencePolicy::Log, ExpertId> RecurrencePolicy::place(ExpertId id) const {
  return {experts_[id].expected ? kSoon : experts_[id].rank, id};
}

void RecurrencePolicy::move(ExpertId id, Log rank, bool expected) {
  Expert& expert = experts_[id];
  Layer& layer = layer_of(id);
  if (expert.resident) layer.resident.erase(place(id));
  expert.rank = rank;
  expert.expected = expected;
  if (expert.resident) layer.resident.insert(place(id));
}

}  // namespace k3::experts
