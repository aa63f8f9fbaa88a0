// Attention residuals: instead of one residual stream, each half layer mixes the snapshots taken at
// block boundaries and the running prefix (docs/architecture.md, "Attention residuals").
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/checkpoint/model_config.h"
#include "common/kernels/matrix.h"

namespace k3::compute {

// The residual state of one batch, [rows][hidden] each; every row on its own. One thread.
class Residual {
 public:
  // Buffers for `max_rows` rows. `multiplier` is borrowed.
  Residual(const ModelConfig& config, std::size_t max_rows, const kernels::Multiplier& multiplier);

  // Starts a batch of `rows` rows: no snapshots; the caller fills prefix() with embeddings.
  void start(std::size_t rows);

  float* prefix() { return prefix_.data(); }
  // Snapshot s, s < snapshots().
  float* snapshot(std::size_t s) { return snapshots_.data() + s * stride_; }
  std::size_t snapshots() const { return snapshot_count_; }

  // Pushes the prefix on the snapshots and clears it: the next add() replaces.
  void push_prefix();

  // prefix += values, or prefix = values after a push.
  void add(const float* values);

  // out[r] = sum over sources s (the snapshots in order, then the prefix unless it is cleared) of
  // p_s * source_s, where p = softmax over s of dot(source_s / rms(source_s), fold); fold [hidden]
  // is norm_w * proj_w. With the prefix as the only source, out = prefix.
  void mix(const float* fold, float* out) const;

  std::uint64_t bytes() const;

 private:
  void mix_row(std::size_t row, const float* fold, float* out) const;

  const kernels::Multiplier& multiplier_;
  std::size_t hidden_;
  float eps_;
  std::size_t stride_;  // floats of one snapshot
  std::size_t rows_ = 0;
  std::size_t snapshot_count_ = 0;
  std::size_t max_sources_;
  bool prefix_cleared_ = false;
  std::vector<float> prefix_;
  std::vector<float> snapshots_;
};

}  // namespace k3::compute
