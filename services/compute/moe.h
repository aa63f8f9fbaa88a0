// Stable LatentMoE: routed experts in the latent width, the shared expert at full width
// (docs/architecture.md, "LatentMoE").
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "common/base/aligned.h"
#include "common/base/result.h"
#include "common/checkpoint/model_config.h"
#include "common/kernels/matrix.h"
#include "services/compute/mlp.h"
#include "services/compute/router.h"
#include "services/compute/trunk_cursor.h"
#include "services/compute/weight_source.h"

namespace k3::compute {

// The MoE of every layer, over buffers for one batch. Experts are asked for right after routing,
// each once for the batch, and used as they arrive; every row then sums its own contributions in
// its own fixed order, so that arrival never shows in the bits. One thread calls it.
class Moe {
 public:
  // Buffers for `max_rows` rows; all arguments are borrowed except the size.
  Moe(const ModelConfig& config, std::size_t max_rows, const kernels::Multiplier& multiplier,
      ExpertReader& experts, Mlp& mlp);

  // out[r] = MoE of x[r], both [rows][hidden]. Consumes kRouter..kLatentUp. After an error the
  // demand on the expert reader is the caller's to release.
  Status run(TrunkCursor& trunk, int layer, std::size_t rows, const float* x, float* out);

  std::uint64_t bytes() const;

  // Where the `rows` rows of the latest run went; valid until the next.
  std::span<const Route> routes(std::size_t rows) const { return {routes_.data(), rows}; }

  // Experts asked for so far, each counted once per batch.
  std::uint64_t experts_demanded() const { return experts_demanded_; }

 private:
  // Where one expert's output goes: row `row` has it as its `rank`-th choice.
  struct Use {
    std::size_t row = 0;
    std::size_t rank = 0;
  };

  Status route(TrunkCursor& trunk, int layer, std::size_t rows, const float* x);
  Status request(int layer);
  Status use_experts();
  void use_expert(const ExpertView& expert, const std::vector<Use>& uses);
  void reduce(std::size_t rows);

  const ModelConfig& config_;
  const kernels::Multiplier& multiplier_;
  ExpertReader& experts_;
  Mlp& mlp_;
  std::vector<Route> routes_;                       // [rows]
  std::map<std::uint32_t, std::vector<Use>> uses_;  // by expert
  Floats scores_;                                   // [rows][experts]
  Floats bias_;                                     // [experts]
  Floats latent_;                                   // [rows][latent]: routed input, later the sum
  Floats gathered_;       // [rows][latent]: one expert's input, then output
  Floats gate_, up_;      // [rows][expert_width]
  Floats contributions_;  // [rows][top_k][latent]
  Floats norm_;           // [latent]
  Floats shared_;         // [rows][hidden]
  std::uint64_t experts_demanded_ = 0;
};

}  // namespace k3::compute
