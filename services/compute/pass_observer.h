// Who wants to see what a pass computes: the recording of one, or the comparison with one.
#pragma once

#include <span>

#include "common/base/result.h"
#include "services/compute/router.h"
#include "services/compute/session.h"

namespace k3::compute {

// Called on the model's thread; everything passed is valid during the call only. An error ends the
// pass with it.
class PassObserver {
 public:
  virtual ~PassObserver() = default;

  virtual Status pass_begun(std::span<const Row> rows) = 0;

  // `activations` [rows][hidden]: the residual prefix after `layer`. `routes`: one a row, none in a
  // dense layer.
  virtual Status layer_done(int layer, std::span<const float> activations,
                            std::span<const Route> routes) = 0;

  // `logits` [rows that want them][vocab].
  virtual Status pass_done(std::span<const float> logits) = 0;
};

}  // namespace k3::compute
