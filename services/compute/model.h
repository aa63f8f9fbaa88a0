// The whole model: a batch of rows in, logits out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/aligned.h"
#include "common/base/result.h"
#include "common/checkpoint/model_config.h"
#include "common/checkpoint/trunk_order.h"
#include "common/kernels/matrix.h"
#include "services/compute/layer_stack.h"
#include "services/compute/pass_observer.h"
#include "services/compute/session.h"
#include "services/compute/trunk_cursor.h"
#include "services/compute/weight_source.h"

namespace k3::compute {

// Owns the configuration and all activation buffers. A row's logits depend on nothing but its
// session and position: not on the batch, threads or instruction set. One thread calls it.
class Model {
 public:
  // The kernels, the readers and what the pump touches are borrowed.
  Model(ModelConfig config, std::size_t max_rows, const kernels::Multiplier& multiplier,
        TrunkReader& trunk, ExpertReader& experts, Pump pump);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelConfig& config() const { return config_; }
  std::size_t max_rows() const { return max_rows_; }
  Session new_session() const { return Session(config_); }

  // Runs 1..max_rows rows (K3_CHECK) through all layers and advances their sessions. Returns the
  // logits of the rows that want them, in row order, [wanted][vocab], valid until the next call;
  // the output head is not even read when no row does. `another_follows`: see
  // TrunkReader::begin_pass. The pump runs before each layer.
  // After an error the rows' sessions are unusable until reset; the readers are ready for another
  // call.
  Result<std::span<const float>> forward(std::span<const Row> rows, bool another_follows);

  // Shows the passes from here on to `observer`, borrowed; null: to nobody.
  void observe(PassObserver* observer) { observer_ = observer; }

  // Bytes of all buffers, logits of every row of a batch included: activation_bytes() of max_rows()
  // (common/plan/compute_memory.h).
  std::uint64_t bytes() const;

  std::uint64_t passes() const { return passes_; }
  // Wall clock spent in the pump so far.
  std::uint64_t pumped_ns() const { return pumped_ns_; }
  std::uint64_t experts_demanded() const { return layers_.moe().experts_demanded(); }

 private:
  Status run(std::span<const Row> rows, bool another_follows, std::size_t wanted);
  Status pump();
  Status show_layer(int layer, std::size_t rows);
  Status embed(std::span<const Row> rows);
  Status run_head(std::span<const Row> rows, std::size_t wanted);

  ModelConfig config_;
  std::size_t max_rows_;
  const kernels::Multiplier& multiplier_;
  std::vector<TrunkTensor> order_;
  TrunkReader& trunk_;
  ExpertReader& experts_;
  Pump pump_;
  PassObserver* observer_ = nullptr;
  TrunkCursor cursor_;
  LayerStack layers_;
  Floats final_;   // [rows][hidden]
  Floats logits_;  // [max_rows][vocab]
  std::uint64_t passes_ = 0;
  std::uint64_t pumped_ns_ = 0;
};

}  // namespace k3::compute
