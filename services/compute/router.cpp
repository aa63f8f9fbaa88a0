#include "services/compute/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace k3::compute {

Route route_row(std::span<const float> scores, std::span<const float> bias, int top_k,
                float scale) {
  std::vector<float> selection(scores.size());
  for (std::size_t e = 0; e < scores.size(); ++e) {
    const float biased = scores[e] + bias[e];
    selection[e] = std::isnan(biased) ? -std::numeric_limits<float>::infinity() : biased;
  }
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0u);
  std::partial_sort(order.begin(), order.begin() + top_k, order.end(),
                    [&](std::uint32_t a, std::uint32_t b) {
                      return selection[a] != selection[b] ? selection[a] > selection[b] : a < b;
                    });
  order.resize(top_k);
  float sum = 0.0f;
  for (const std::uint32_t expert : order) sum += scores[expert];
  Route route{.experts = std::move(order), .weights = {}};
  for (const std::uint32_t expert : route.experts) {
    route.weights.push_back(scores[expert] / (sum + 1e-20f) * scale);
  }
  return route;
}

}  // namespace k3::compute
