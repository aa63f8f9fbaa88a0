// The SiTU-gated MLP at full width: layer 0's dense one and the shared expert.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/aligned.h"
#include "common/base/result.h"
#include "common/checkpoint/model_config.h"
#include "common/kernels/matrix.h"
#include "services/compute/trunk_cursor.h"

namespace k3::compute {

// One thread calls it.
class Mlp {
 public:
  // Which tensors, and how wide they are.
  struct Part {
    TrunkRole gate, up, down;
    std::size_t width;
  };
  static Part dense(const ModelConfig& config);
  static Part shared(const ModelConfig& config);

  // Buffers for `max_rows` rows of the widest part the model has; all borrowed except the size.
  Mlp(const ModelConfig& config, std::size_t max_rows, const kernels::Multiplier& multiplier);

  // out[r] = down situ(gate x[r], up x[r]); x and out are [rows][hidden].
  Status run(TrunkCursor& trunk, int layer, const Part& part, std::size_t rows, const float* x,
             float* out);

  std::uint64_t bytes() const { return (gate_.size() + up_.size()) * sizeof(float); }

 private:
  const ModelConfig& config_;
  const kernels::Multiplier& multiplier_;
  Floats gate_, up_;  // [rows][width]
};

}  // namespace k3::compute
