// Gated multi-head latent attention without positions, in absorbed form: attention runs over the
// cached latents; keys and values per head are never formed (docs/architecture.md, "MLA").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "common/checkpoint/model_config.h"
#include "common/kernels/matrix.h"
#include "services/compute/session.h"
#include "services/compute/trunk_cursor.h"

namespace k3::compute {

// The MLA of every layer, over buffers for one batch. Each row attends to the positions of its
// session up to its own, in position order, so its bits do not depend on the batch. Heads run in
// parallel. One thread calls it.
class Mla {
 public:
  // Buffers for `max_rows` rows; all arguments are borrowed except the size.
  Mla(const ModelConfig& config, std::size_t max_rows, const kernels::Multiplier& multiplier);

  // out[r] = MLA of x[r], both [rows][hidden]; appends each row's latent to the cache of `layer` in
  // its session. Consumes kMlaQa..kMlaO.
  Status run(TrunkCursor& trunk, int layer, std::span<const Row> rows, const float* x, float* out);

  // Buffers now held; those for scores grow with the longest sequence.
  std::uint64_t bytes() const;

 private:
  Status project(TrunkCursor& trunk, int layer, std::span<const Row> rows, const float* x);
  void append_latents(int layer, std::span<const Row> rows);
  void make_room_for_scores(std::span<const Row> rows);
  void run_head(int layer, std::size_t head, const kernels::Matrix& kv, std::span<const Row> rows);
  // query and context of one head and row: absorbed query in, weighted latent sum out.
  void attend(LatentCache& cache, std::size_t positions, const float* query, float* scores,
              float* context) const;

  std::size_t latent_width() const { return config_.kv_rank + config_.rope_dim; }

  const ModelConfig& config_;
  const kernels::Multiplier& multiplier_;
  std::vector<float> q_rank_;            // [rows][q_rank]
  std::vector<float> q_;                 // [rows][heads][nope_dim + rope_dim]
  std::vector<float> latent_;            // [rows][kv_rank + rope_dim]
  std::vector<float> q_norm_, kv_norm_;  // [q_rank], [kv_rank]
  std::vector<float> gate_, y_;          // [rows][heads][v_dim]
  std::vector<float> query_;             // [heads][kv_rank + rope_dim]
  std::vector<float> context_;           // [heads][rows][kv_rank]
  std::vector<float> weight_row_;        // [heads][kv_rank]
  std::vector<float> scores_;            // [heads][score_positions_]
  std::size_t score_positions_ = 0;
};

}  // namespace k3::compute
