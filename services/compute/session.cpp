#include "services/compute/session.h"

#include <algorithm>

#include "common/base/check.h"

namespace k3::compute {

namespace {

std::size_t recurrent_floats(const ModelConfig& config) {
  return std::size_t(config.kda_width()) * config.kda_head_dim;
}

std::size_t history_floats(const ModelConfig& config) {
  return std::size_t{3} * config.kda_width() * (config.conv_taps - 1);
}

}  // namespace

void LatentCache::reserve(std::size_t positions) {
  while (blocks_.size() * kLatentBlockPositions < positions)
    blocks_.emplace_back(kLatentBlockPositions * width_);
}

Session::Session(const ModelConfig& config) : attention_(config.attention) {
  for (const Attention kind : attention_) {
    if (kind == Attention::kKda) {
      slot_.push_back(kda_.size());
      kda_.push_back({.recurrent = Floats(recurrent_floats(config)),
                      .conv_history = Floats(history_floats(config))});
    } else {
      slot_.push_back(latents_.size());
      latents_.emplace_back(config.kv_rank + config.rope_dim);
    }
  }
}

void Session::reset() {
  for (KdaState& state : kda_) {
    std::fill(state.recurrent.begin(), state.recurrent.end(), 0.0f);
    std::fill(state.conv_history.begin(), state.conv_history.end(), 0.0f);
  }
  length_ = 0;
}

KdaState& Session::kda(int layer) {
  K3_CHECK(attention_[layer] == Attention::kKda, "not a KDA layer");
  return kda_[slot_[layer]];
}

LatentCache& Session::latents(int layer) {
  K3_CHECK(attention_[layer] == Attention::kMla, "not an MLA layer");
  return latents_[slot_[layer]];
}

std::uint64_t Session::bytes() const {
  std::uint64_t bytes = 0;
  for (const KdaState& state : kda_) {
    bytes += (state.recurrent.size() + state.conv_history.size()) * sizeof(float);
  }
  for (const LatentCache& cache : latents_) bytes += cache.bytes();
  return bytes;
}

}  // namespace k3::compute
