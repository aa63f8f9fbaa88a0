// Kimi Delta Attention: gated delta-rule recurrence with short convolutions
// (docs/architecture.md, "KDA").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/aligned.h"
#include "common/base/result.h"
#include "common/checkpoint/model_config.h"
#include "common/kernels/matrix.h"
#include "services/compute/session.h"
#include "services/compute/trunk_cursor.h"

namespace k3::compute {

// The KDA of every layer, over buffers for one batch. Projections run over the whole batch; the
// recurrence runs head by head in parallel, each over the rows in order. One thread calls it.
class Kda {
 public:
  // Buffers for `max_rows` rows; all arguments are borrowed except the size.
  Kda(const ModelConfig& config, std::size_t max_rows, const kernels::Multiplier& multiplier);

  // out[r] = KDA of x[r], both [rows][hidden]; updates the state of `layer` in each row's session.
  // Consumes kKdaQ..kKdaO. An error leaves the sessions' states undefined.
  Status run(TrunkCursor& trunk, int layer, std::span<const Row> rows, const float* x, float* out);

  std::uint64_t bytes() const;

 private:
  Status project(TrunkCursor& trunk, int layer, std::size_t rows, const float* x);
  void run_head(int layer, std::size_t head, std::span<const Row> rows);

  const ModelConfig& config_;
  const kernels::Multiplier& multiplier_;
  Floats q_, k_, v_, z_, gate_, y_;    // [rows][heads * head_dim]
  Floats q_conv_, k_conv_, v_conv_;    // [heads * head_dim][conv_taps]
  Floats decay_rank_;                  // [rows][head_dim]: Wfa x
  Floats beta_;                        // [rows][heads]
  Floats dt_bias_, a_log_, out_norm_;  // [heads * head_dim], [heads], [head_dim]
  Floats scratch_;                     // [heads][4 * head_dim]
};

}  // namespace k3::compute
