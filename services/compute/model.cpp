#include "services/compute/model.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/observe/spans.h"
#include "services/compute/messaging_timer.h"

namespace k3::compute {

Model::Model(ModelConfig config, std::size_t max_rows, const kernels::Multiplier& multiplier,
             TrunkReader& trunk, ExpertReader& experts, Pump pump)
    : config_(std::move(config)),
      max_rows_(max_rows),
      multiplier_(multiplier),
      order_(trunk_order(config_)),
      trunk_(trunk),
      experts_(experts),
      pump_(std::move(pump)),
      cursor_(order_, trunk, multiplier),
      layers_(config_, max_rows, multiplier, experts),
      final_(max_rows * config_.hidden),
      logits_(max_rows * config_.vocab) {}

Result<std::span<const float>> Model::forward(std::span<const Row> rows, bool another_follows) {
  const spans::Scope span("pass", static_cast<std::uint32_t>(rows.size()));
  K3_CHECK(!rows.empty() && rows.size() <= max_rows_, "rows outside the buffers");
  const std::size_t wanted =
      std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.logits_wanted; });
  if (Status status = run(rows, another_follows, wanted); !status) {
    experts_.release();
    trunk_.abandon();
    return tl::unexpected<Error>(std::move(status.error()));
  }
  for (const Row& row : rows) row.session->set_length(row.position + 1);
  ++passes_;
  return std::span<const float>(logits_.data(), wanted * config_.vocab);
}

Status Model::run(std::span<const Row> rows, bool another_follows, std::size_t wanted) {
  // First, alone: this answer is waited for, and should not queue behind those to begin_pass.
  layers_.residual().start(rows.size());
  if (observer_ != nullptr) K3_TRY(observer_->pass_begun(rows));
  K3_TRY(embed(rows));
  K3_TRY(trunk_.begin_pass(wanted > 0, another_follows));
  cursor_.restart();
  for (int layer = 0; layer < config_.layers; ++layer) {
    K3_TRY(pump());
    K3_TRY(layers_.run_layer(cursor_, layer, rows));
    if (observer_ != nullptr) K3_TRY(show_layer(layer, rows.size()));
  }
  if (wanted > 0) K3_TRY(run_head(rows, wanted));
  if (observer_ == nullptr) return {};
  return observer_->pass_done({logits_.data(), wanted * config_.vocab});
}

Status Model::show_layer(int layer, std::size_t rows) {
  const std::span<const Route> routes =
      config_.moe(layer) ? layers_.moe().routes(rows) : std::span<const Route>();
  return observer_->layer_done(layer, {layers_.residual().prefix(), rows * config_.hidden}, routes);
}

Status Model::pump() {
  const spans::Scope span("messaging");
  const MessagingTimer timer(pumped_ns_);
  return pump_();
}

Status Model::embed(std::span<const Row> rows) {
  const spans::Scope span("embedding", static_cast<std::uint32_t>(rows.size()));
  std::vector<std::int32_t> ids;
  for (const Row& row : rows) ids.push_back(row.id);
  K3_ASSIGN(const EmbeddingRows stored, trunk_.embedding(ids));
  K3_ASSIGN(const TrunkEncoding encoding, checked_encoding(stored.encoding, kEmbeddingName));
  const std::size_t values = rows.size() * config_.hidden;
  const std::size_t row_bytes = config_.hidden * weight_bytes(encoding);
  if (stored.row_bytes != row_bytes || stored.data.size() != rows.size() * row_bytes) {
    return fail(ErrorCode::kWeights, "{}: {} bytes in rows of {}, expected {} rows of {}",
                kEmbeddingName, stored.data.size(), stored.row_bytes, rows.size(), row_bytes);
  }
  widen(multiplier_.table(), encoding, stored.data.data(), layers_.residual().prefix(), values);
  return {};
}

Status Model::run_head(std::span<const Row> rows, std::size_t wanted) {
  K3_TRY(pump());
  const spans::Scope span("head", static_cast<std::uint32_t>(wanted));
  K3_TRY(layers_.finish(cursor_, rows.size(), final_.data()));
  const std::size_t hidden = config_.hidden;
  std::size_t kept = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (!rows[r].logits_wanted) continue;
    if (kept != r) std::copy_n(final_.data() + r * hidden, hidden, final_.data() + kept * hidden);
    ++kept;
  }
  return cursor_.multiply(-1, TrunkRole::kHead, final_.data(), hidden, wanted, logits_.data(),
                          config_.vocab);
}

std::uint64_t Model::bytes() const {
  return layers_.bytes() + (final_.size() + logits_.size()) * sizeof(float);
}

}  // namespace k3::compute
