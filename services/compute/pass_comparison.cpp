#include "services/compute/pass_comparison.h"

#include <algorithm>
#include <string_view>

#include "common/observe/spans.h"
#include "services/compute/recorder.h"

namespace k3::compute {

namespace {

// `where` is the pass and the layer; a row has `width` values.
template <class Value>
Status equal(std::string_view where, std::string_view what, const std::vector<Value>& got,
             const std::vector<Value>& recorded, std::size_t width) {
  if (got.size() != recorded.size()) {
    return fail(ErrorCode::kFailed, "{}: {} {} computed, {} recorded", where, got.size(), what,
                recorded.size());
  }
  const auto [mine, theirs] = std::mismatch(got.begin(), got.end(), recorded.begin());
  if (mine == got.end()) return {};
  const auto index = static_cast<std::size_t>(mine - got.begin());
  return fail(ErrorCode::kFailed,
              "{} row {} element {} of the {}: computed 0x{:08x}, recorded 0x{:08x}", where,
              index / width, index % width, what, static_cast<std::uint32_t>(*mine),
              static_cast<std::uint32_t>(*theirs));
}

}  // namespace

PassComparison::PassComparison(std::size_t layers, std::size_t hidden, std::size_t vocab,
                               std::function<std::uint64_t()> waited_ns)
    : hidden_(hidden), vocab_(vocab), waited_ns_(std::move(waited_ns)), times_(layers + 1) {}

void PassComparison::expect(std::uint64_t number, const WholePass& pass) {
  number_ = number;
  expected_ = &pass;
}

// Comparing and recording are not in a layer's time.
void PassComparison::start_clock() {
  waited_before_ = waited_ns_();
  started_ns_ = spans::now_ns();
}

void PassComparison::stop_clock(std::size_t layer) {
  times_[layer].seconds.push_back(static_cast<double>(spans::now_ns() - started_ns_) / 1e9);
  times_[layer].waited_ns += waited_ns_() - waited_before_;
}

Status PassComparison::pass_begun(std::span<const Row>) {
  start_clock();
  return {};
}

Status PassComparison::layer_done(int layer, std::span<const float> activations,
                                  std::span<const Route> routes) {
  stop_clock(static_cast<std::size_t>(layer));
  const RecordedLayer got = recorded_layer(layer, activations, routes);
  const RecordedLayer& recorded = expected_->layers[static_cast<std::size_t>(layer)];
  const std::string where = fmt::format("pass {} layer {}", number_, layer);
  // Routing comes first: activations that follow from it say less.
  const std::size_t top_k = routes.empty() ? 1 : std::max<std::size_t>(routes[0].experts.size(), 1);
  K3_TRY(equal(where, "experts", got.experts, recorded.experts, top_k));
  K3_TRY(equal(where, "weights of experts", got.weights, recorded.weights, top_k));
  K3_TRY(equal(where, "activations", got.activations, recorded.activations, hidden_));
  start_clock();
  return {};
}

Status PassComparison::pass_done(std::span<const float> logits) {
  if (!logits.empty()) stop_clock(times_.size() - 1);
  const RecordedDone got = recorded_done(logits, vocab_);
  const std::string where = fmt::format("pass {} head", number_);
  K3_TRY(equal(where, "logits", got.logits, expected_->done.logits, vocab_));
  return equal(where, "chosen ids", got.chosen, expected_->done.chosen, 1);
}

}  // namespace k3::compute
