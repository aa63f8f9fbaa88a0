#include "services/compute/moe.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/observe/spans.h"

namespace k3::compute {

Moe::Moe(const ModelConfig& config, std::size_t max_rows, const kernels::Multiplier& multiplier,
         ExpertReader& experts, Mlp& mlp)
    : config_(config), multiplier_(multiplier), experts_(experts), mlp_(mlp) {
  routes_.resize(max_rows);
  scores_.resize(max_rows * config.experts);
  bias_.resize(config.experts);
  latent_.resize(max_rows * config.latent);
  gathered_.resize(max_rows * config.latent);
  gate_.resize(max_rows * config.expert_width);
  up_.resize(max_rows * config.expert_width);
  contributions_.resize(max_rows * config.top_k * config.latent);
  norm_.resize(config.latent);
  shared_.resize(max_rows * config.hidden);
}

Status Moe::run(TrunkCursor& trunk, int layer, std::size_t rows, const float* x, float* out) {
  const std::size_t hidden = config_.hidden;
  const std::size_t latent = config_.latent;
  K3_TRY(route(trunk, layer, rows, x));
  K3_TRY(request(layer));
  {
    const spans::Scope span("shared expert", static_cast<std::uint32_t>(layer));
    // The shared expert's first products complete it.
    K3_TRY(trunk.queue(layer, TrunkRole::kLatentDown, x, hidden, rows, latent_.data(), latent));
    K3_TRY(mlp_.run(trunk, layer, Mlp::shared(config_), rows, x, shared_.data()));
  }
  K3_TRY(use_experts());
  reduce(rows);
  K3_TRY(trunk.read(layer, TrunkRole::kRoutedNorm, norm_));
  for (std::size_t r = 0; r < rows; ++r) {
    float* row = latent_.data() + r * latent;
    multiplier_.table().rms_norm(row, norm_.data(), config_.rms_eps, row, latent);
  }
  K3_TRY(trunk.multiply(layer, TrunkRole::kLatentUp, latent_.data(), latent, rows, out, hidden));
  multiplier_.table().add(shared_.data(), out, rows * hidden);
  return {};
}

Status Moe::route(TrunkCursor& trunk, int layer, std::size_t rows, const float* x) {
  const spans::Scope span("router", static_cast<std::uint32_t>(layer));
  const std::size_t experts = config_.experts;
  K3_TRY(
      trunk.multiply(layer, TrunkRole::kRouter, x, config_.hidden, rows, scores_.data(), experts));
  K3_TRY(trunk.read(layer, TrunkRole::kRouterBias, bias_));
  multiplier_.table().sigmoid(scores_.data(), rows * experts);
  uses_.clear();
  for (std::size_t r = 0; r < rows; ++r) {
    routes_[r] = route_row({scores_.data() + r * experts, experts}, bias_, config_.top_k,
                           config_.routed_scale);
    for (std::size_t rank = 0; rank < routes_[r].experts.size(); ++rank) {
      uses_[routes_[r].experts[rank]].push_back({.row = r, .rank = rank});
    }
  }
  return {};
}

Status Moe::request(int layer) {
  std::vector<std::pair<std::size_t, std::uint32_t>> weighed;  // the sum of its places, expert
  for (const auto& [expert, uses] : uses_) {
    std::size_t weight = 0;
    for (const Use& use : uses) weight += static_cast<std::size_t>(config_.top_k) - use.rank;
    weighed.emplace_back(weight, expert);
  }
  std::stable_sort(weighed.begin(), weighed.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::uint32_t> wanted;
  for (const auto& [weight, expert] : weighed) wanted.push_back(expert);
  experts_demanded_ += wanted.size();
  return experts_.fetch(layer, wanted);
}

Status Moe::use_experts() {
  for (std::size_t left = uses_.size(); left > 0; --left) {
    K3_ASSIGN(const ExpertView expert, experts_.next());
    const auto uses = uses_.find(expert.expert);
    K3_CHECK(uses != uses_.end(), "an expert nobody asked for");
    use_expert(expert, uses->second);
  }
  experts_.release();
  return {};
}

void Moe::use_expert(const ExpertView& expert, const std::vector<Use>& uses) {
  const spans::Scope span("expert", expert.expert);
  const std::size_t latent = config_.latent;
  const std::size_t width = config_.expert_width;
  const std::size_t count = uses.size();
  for (std::size_t i = 0; i < count; ++i) {
    std::copy_n(latent_.data() + uses[i].row * latent, latent, gathered_.data() + i * latent);
  }
  const kernels::Product gate_and_up[] = {{expert.w1, gate_.data(), width},
                                          {expert.w3, up_.data(), width}};
  multiplier_.multiply(gate_and_up, gathered_.data(), latent, count);
  multiplier_.table().situ(gate_.data(), up_.data(), gate_.data(), count * width, config_.situ_beta,
                           config_.situ_linear_beta);
  multiplier_.multiply(expert.w2, gate_.data(), width, count, gathered_.data(), latent);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t slot = uses[i].row * config_.top_k + uses[i].rank;
    std::copy_n(gathered_.data() + i * latent, latent, contributions_.data() + slot * latent);
  }
}

void Moe::reduce(std::size_t rows) {
  const std::size_t latent = config_.latent;
  const std::size_t top_k = config_.top_k;
  multiplier_.for_each(rows, [&](std::size_t r) {
    float* sum = latent_.data() + r * latent;
    std::fill_n(sum, latent, 0.0f);
    for (std::size_t rank = 0; rank < top_k; ++rank) {
      multiplier_.table().axpy(routes_[r].weights[rank],
                               contributions_.data() + (r * top_k + rank) * latent, sum, latent);
    }
  });
}

std::uint64_t Moe::bytes() const {
  std::uint64_t floats = 0;
  for (const auto* buffer :
       {&scores_, &bias_, &latent_, &gathered_, &gate_, &up_, &contributions_, &norm_, &shared_}) {
    floats += buffer->size();
  }
  return floats * sizeof(float);
}

}  // namespace k3::compute
