// One decoder layer over a batch, for every layer of the model: residual mix, attention, MLP or
// MoE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/aligned.h"
#include "common/base/result.h"
#include "common/checkpoint/model_config.h"
#include "common/kernels/matrix.h"
#include "services/compute/kda.h"
#include "services/compute/mla.h"
#include "services/compute/mlp.h"
#include "services/compute/moe.h"
#include "services/compute/residual.h"
#include "services/compute/session.h"
#include "services/compute/trunk_cursor.h"

namespace k3::compute {

// One thread calls it.
class LayerStack {
 public:
  // Buffers for `max_rows` rows, allocated once; all arguments are borrowed except the size.
  LayerStack(const ModelConfig& config, std::size_t max_rows, const kernels::Multiplier& multiplier,
             ExpertReader& experts);

  Residual& residual() { return residual_; }
  const Moe& moe() const { return moe_; }

  // Runs `layer` on the residual state of the batch; consumes exactly its trunk tensors.
  Status run_layer(TrunkCursor& trunk, int layer, std::span<const Row> rows);

  // out[r] = rms(mix of row r, final norm), [rows][hidden]: what the output head multiplies.
  // Consumes kOutResNorm..kFinalNorm.
  Status finish(TrunkCursor& trunk, std::size_t rows, float* out);

  std::uint64_t bytes() const;

 private:
  Status read_fold(TrunkCursor& trunk, int layer, TrunkRole norm, TrunkRole proj);
  // out[r] = rms(h_[r], the norm of `role`).
  Status norm_rows(TrunkCursor& trunk, int layer, TrunkRole role, std::size_t rows, float* out);

  const ModelConfig& config_;
  const kernels::Multiplier& multiplier_;
  Residual residual_;
  Kda kda_;
  Mla mla_;
  Mlp mlp_;
  Moe moe_;
  Floats fold_, proj_, norm_;  // [hidden]
  Floats h_, x_, out_;         // [rows][hidden]
};

}  // namespace k3::compute
