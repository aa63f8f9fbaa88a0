// Compares passes with recorded ones, and takes the time of every layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "services/compute/pass_observer.h"
#include "services/compute/recording.h"

namespace k3::compute {

// All that is recorded of one complete pass.
struct WholePass {
  RecordedPass pass;
  std::vector<RecordedLayer> layers;
  RecordedDone done;
};

// What one layer, or the head, took in each pass.
struct LayerTimes {
  std::vector<double> seconds;
  std::uint64_t waited_ns = 0;  // of it for weights, over all passes
};

class PassComparison final : public PassObserver {
 public:
  // `waited_ns` gives the time spent waiting for weights so far.
  PassComparison(std::size_t layers, std::size_t hidden, std::size_t vocab,
                 std::function<std::uint64_t()> waited_ns);

  // The pass that comes next, pass `number` of the recording; borrowed until it is over.
  void expect(std::uint64_t number, const WholePass& pass);

  // Errors of these: kFailed naming the first value that differs.
  Status pass_begun(std::span<const Row> rows) override;
  Status layer_done(int layer, std::span<const float> activations,
                    std::span<const Route> routes) override;
  Status pass_done(std::span<const float> logits) override;

  // Of every layer; the last is the head's.
  const std::vector<LayerTimes>& times() const { return times_; }

 private:
  void start_clock();
  void stop_clock(std::size_t layer);

  std::size_t hidden_;
  std::size_t vocab_;
  std::function<std::uint64_t()> waited_ns_;
  const WholePass* expected_ = nullptr;
  std::uint64_t number_ = 0;
  std::vector<LayerTimes> times_;
  std::uint64_t started_ns_ = 0;
  std::uint64_t waited_before_ = 0;
};

}  // namespace k3::compute
