#include "services/compute/residual.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/observe/spans.h"
#include "common/plan/compute_memory.h"

namespace k3::compute {

Residual::Residual(const ModelConfig& config, std::size_t max_rows,
                   const kernels::Multiplier& multiplier)
    : multiplier_(multiplier),
      hidden_(config.hidden),
      eps_(config.rms_eps),
      stride_(max_rows * config.hidden),
      max_sources_(most_snapshots(config) + 1),
      prefix_(stride_),
      snapshots_(most_snapshots(config) * stride_) {}

void Residual::start(std::size_t rows) {
  K3_CHECK(rows * hidden_ <= stride_, "batch larger than the buffers");
  rows_ = rows;
  snapshot_count_ = 0;
  prefix_cleared_ = false;
}

void Residual::push_prefix() {
  const spans::Scope span("residual sum");
  K3_CHECK(snapshot_count_ + 1 < max_sources_ && !prefix_cleared_, "one snapshot too many");
  std::copy_n(prefix_.begin(), rows_ * hidden_, snapshot(snapshot_count_));
  ++snapshot_count_;
  prefix_cleared_ = true;
}

void Residual::add(const float* values) {
  const spans::Scope span("residual sum");
  if (prefix_cleared_) {
    std::copy_n(values, rows_ * hidden_, prefix_.begin());
    prefix_cleared_ = false;
  } else {
    multiplier_.table().add(values, prefix_.data(), rows_ * hidden_);
  }
}

void Residual::mix(const float* fold, float* out) const {
  const spans::Scope span("residual mix");
  if (snapshot_count_ == 0) {
    std::copy_n(prefix_.begin(), rows_ * hidden_, out);
    return;
  }
  multiplier_.for_each(rows_, [&](std::size_t row) { mix_row(row, fold, out + row * hidden_); });
}

void Residual::mix_row(std::size_t row, const float* fold, float* out) const {
  const kernels::KernelTable& table = multiplier_.table();
  const std::size_t sources = snapshot_count_ + (prefix_cleared_ ? 0 : 1);
  const auto source = [&](std::size_t s) {
    return (s < snapshot_count_ ? snapshots_.data() + s * stride_ : prefix_.data()) + row * hidden_;
  };
  std::vector<float> weights(sources);
  for (std::size_t s = 0; s < sources; ++s) {
    const float mean_square = table.dot(source(s), source(s), hidden_) / float(hidden_);
    weights[s] = table.dot(source(s), fold, hidden_) / std::sqrt(mean_square + eps_);
  }
  table.softmax(weights.data(), sources);
  std::fill_n(out, hidden_, 0.0f);
  for (std::size_t s = 0; s < sources; ++s) table.axpy(weights[s], source(s), out, hidden_);
}

std::uint64_t Residual::bytes() const {
  return (prefix_.size() + snapshots_.size()) * sizeof(float);
}

}  // namespace k3::compute
