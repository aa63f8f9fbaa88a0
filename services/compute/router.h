// Which experts a row goes to, and with what weight.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace k3::compute {

// Experts of one row in descending selection score, ties to the lower index: the order in which
// their contributions are summed.
struct Route {
  std::vector<std::uint32_t> experts;  // [top_k]
  std::vector<float> weights;          // [top_k]
};

// Picks the `top_k` largest of scores + bias; the weights are the picked scores without the bias,
// normalised to sum to `scale`. `scores` are after the sigmoid; NaN counts as lowest, so that a
// broken weight cannot break the order. Any thread.
Route route_row(std::span<const float> scores, std::span<const float> bias, int top_k, float scale);

}  // namespace k3::compute
