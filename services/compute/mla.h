// Gated multi-head latent attention without positions, in absorbed form: attention runs over the
// cached latents; keys and values per head are never formed (docs/architecture.md, "MLA").
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

// Positions whose scores exist at a time. Blocks begin at multiples of it, so that the bits of a
// row depend on its position alone; the latents of a block stay in the second-level cache while
// every query of a group meets them.
inline constexpr std::size_t kScorePositions = 64;
static_assert(kLatentBlockPositions % kScorePositions == 0, "a block's latents lie in one piece");
// Queries (a head of a row) that walk the cache together.
inline constexpr std::size_t kGroupQueries = 16;

// The MLA of every layer, over buffers for one batch. Each row attends to the positions of its
// session up to its own, block by block in position order, by an online softmax, so its bits do not
// depend on the batch. Groups of queries run in parallel. One thread calls it.
class Mla {
 public:
  // Buffers for `max_rows` rows; all arguments are borrowed except the size.
  Mla(const ModelConfig& config, std::size_t max_rows, const kernels::Multiplier& multiplier);

  // out[r] = MLA of x[r], both [rows][hidden]; appends each row's latent to the cache of `layer` in
  // its session. Consumes kMlaQa..kMlaO.
  Status run(TrunkCursor& trunk, int layer, std::span<const Row> rows, const float* x, float* out);

  // Buffers held; they do not grow.
  std::uint64_t bytes() const;

 private:
  Status project(TrunkCursor& trunk, int layer, std::span<const Row> rows, const float* x);
  void append_latents(int layer, std::span<const Row> rows);
  // The heads of `kv`, of which `first_head` is the first, for the rows of one session, of which
  // `first_row` is the first in the batch.
  void run_heads(int layer, std::size_t first_head, const kernels::Matrix& kv,
                 std::span<const Row> rows, std::size_t first_row);
  // Wk^T q_nope, then q_rope, to be met by a position's latent and shared key part. `head` counts
  // within `kv`; weight_row is scratch, [kv_rank].
  void absorb(const kernels::Matrix& kv, std::size_t head, const float* q, float* weight_row,
              float* query) const;
  // Softmax-weighted sums of latents for queries `first`..first + count - 1 of query_, which are
  // [heads][rows of one session], into context_ in the same order. count <= kGroupQueries.
  void attend(LatentCache& cache, std::span<const Row> rows, std::size_t first, std::size_t count);

  std::size_t latent_width() const { return config_.kv_rank + config_.rope_dim; }

  const ModelConfig& config_;
  const kernels::Multiplier& multiplier_;
  Floats q_rank_;            // [rows][q_rank]
  Floats q_;                 // [rows][heads][nope_dim + rope_dim]
  Floats latent_;            // [rows][kv_rank + rope_dim]
  Floats q_norm_, kv_norm_;  // [q_rank], [kv_rank]
  Floats gate_, y_;          // [rows][heads][v_dim]
  Floats query_;             // [heads][rows][kv_rank + rope_dim]
  Floats context_;           // [heads][rows][kv_rank]
  Floats weight_row_;        // [heads][kv_rank]
};

}  // namespace k3::compute
