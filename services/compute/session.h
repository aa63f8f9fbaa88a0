// What a sequence carries from one position to the next: KDA states and the latent KV cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/aligned.h"
#include "common/checkpoint/model_config.h"
#include "common/plan/compute_memory.h"

namespace k3::compute {

// State of one KDA layer.
struct KdaState {
  Floats recurrent;  // S, [heads][head_dim][head_dim]
  // Past inputs of the three convolutions: [q, k, v][heads][conv_taps - 1][head_dim], oldest first.
  Floats conv_history;
};

// Latent cache of one MLA layer: kv_rank + rope_dim floats a position (the normed latent, then the
// shared key part). Grows by whole blocks, so that growing never copies.
class LatentCache {
 public:
  explicit LatentCache(std::size_t width) : width_(width) {}

  // Makes room for `positions` positions.
  void reserve(std::size_t positions);
  float* at(std::size_t position) {
    return blocks_[position / kLatentBlockPositions].data() +
           position % kLatentBlockPositions * width_;
  }
  std::size_t bytes() const {
    return blocks_.size() * kLatentBlockPositions * width_ * sizeof(float);
  }

 private:
  std::size_t width_;
  std::vector<Floats> blocks_;
};

// One sequence. All layers hold the same number of positions, or the session is reset: state is
// never restored in part. One thread.
class Session {
 public:
  explicit Session(const ModelConfig& config);

  // Back to an empty sequence; memory is kept.
  void reset();

  // Positions finished in every layer.
  std::uint32_t length() const { return length_; }
  void set_length(std::uint32_t length) { length_ = length; }

  // `layer` is of the kind asked for (K3_CHECK).
  KdaState& kda(int layer);
  LatentCache& latents(int layer);

  // Held now: sequence_bytes() of its longest length so far (common/plan/compute_memory.h).
  std::uint64_t bytes() const;

 private:
  std::vector<Attention> attention_;
  std::vector<std::size_t> slot_;  // per layer: index into kda_ or latents_
  std::vector<KdaState> kda_;
  std::vector<LatentCache> latents_;
  std::uint32_t length_ = 0;
};

// One row of a batch: a token at a position of a session. Rows of one session stand in the order of
// their positions, without gaps, starting at its length.
struct Row {
  std::int32_t id = 0;
  Session* session = nullptr;
  std::uint32_t position = 0;
  bool logits_wanted = false;
};

}  // namespace k3::compute
