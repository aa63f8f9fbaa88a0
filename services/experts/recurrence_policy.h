// Evicts the expert least likely to be in its layer's next demand, going by its demands so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "services/experts/replacement_policy.h"

namespace k3::experts {

// An expert's score is the sum of its demands' weights, each of which shrinks by a factor of
// exp(-1/2) = 0.61 with every later demand of its layer. The weight falls with the place in the
// demand's list, from 1 for the first to nearly 1 - kFall for the last. Scores outlive residence: 16
// bytes an expert of the model.
//
// The layer of the latest demand gives up its lowest score, unless it has less than an equal share
// of the resident experts or none that is evictable; then the layer with most does. So a token's
// walk through the layers evicts nothing of those that are still to come for their age alone, as
// LRU would. Equal scores go by number, equal layers too.
class RecurrencePolicy final : public ReplacementPolicy {
 public:
  static constexpr double kFall = 0.6;

  RecurrencePolicy(std::uint32_t layers, std::uint32_t experts_per_layer);

  void demand(std::span<const ExpertId> ids) override;
  void expect(ExpertId id) override;  // until its layer's next demand evicted last of all
  void insert(ExpertId id) override;
  void erase(ExpertId id) override;
  std::optional<ExpertId> victim(const std::function<bool(ExpertId)>& evictable) const override;

 private:
  // A logarithm in units of 2^-36, so that equal histories are equal scores to the bit.
  using Log = std::int64_t;

  // The score's logarithm is rank - Layer::clock: it falls for all of a layer at once, and ranks of
  // one layer compare like scores.
  struct Expert {
    Log rank;
    bool resident = false;
    bool expected = false;
  };
  struct Layer {
    Log clock = 0;                                // its demands, times a half
    std::set<std::pair<Log, ExpertId>> resident;  // by rank
    std::vector<ExpertId> expected;
  };

  Layer& layer_of(ExpertId id) { return layers_[id / experts_per_layer_]; }
  using Evictable = std::function<bool(ExpertId)>;
  static std::optional<ExpertId> lowest(const Layer& layer, const Evictable& evictable);
  std::pair<Log, ExpertId> place(ExpertId id) const;
  void move(ExpertId id, Log rank, bool expected);

  std::uint32_t experts_per_layer_;
  std::vector<Expert> experts_;  // by ExpertId
  std::vector<Layer> layers_;
  std::size_t resident_ = 0;
  std::size_t demanded_ = 0;  // the layer of the latest demand
};

}  // namespace k3::experts
