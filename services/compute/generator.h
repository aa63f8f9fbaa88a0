// Greedy generation: prompt in chunks, then token by token, over one session.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "common/ipc/messages.h"
#include "services/compute/model.h"
#include "services/compute/session.h"
#include "services/compute/weight_source.h"

namespace k3::compute {

// The id with the largest logit, ties to the lowest id; kWeights naming `position` and the first id
// whose logit is NaN.
Result<std::int32_t> choose_greedily(std::span<const float> logits, std::uint32_t position);

// Serves one request at a time. One thread. The session's memory is allocated with the first
// request and kept.
class Generator {
 public:
  struct Limits {
    std::size_t chunk = 32;              // prompt positions of one pass, 1..model.max_rows()
    std::uint32_t max_positions = 4096;  // of prompt and generated tokens together
  };
  // Receives Progress, Logits, Token and Finished, in the order of proto/README.md.
  using Emit = std::function<void(const ipc::Message&)>;

  // All borrowed.
  Generator(Model& model, const TrunkReader& trunk, const ExpertReader& experts, Limits limits);

  // kUsage naming the value at fault: an empty prompt, an id outside the vocabulary, no tokens
  // asked for, too many positions.
  Status validate(const ipc::Generate& request) const;

  // Runs a valid request to its end. On an error (the pump's kStopped included) nothing more is
  // emitted and the next request starts afresh.
  Status run(const ipc::Generate& request, const Emit& emit);

  // Time of the latest request's prefill, or of its finished passes.
  const ipc::Timings& prefill() const { return prefill_; }

  std::uint64_t state_bytes() const { return session_ ? session_->bytes() : 0; }
  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t prefill_positions() const { return prefill_positions_; }
  // Sum over all passes, failed ones included.
  const ipc::Timings& spent() const { return spent_; }

 private:
  struct Run;  // the request in hand

  // Feeds the positions from session_->length() to the end of the sequence in chunks. Returns the
  // logits of the last one.
  Result<std::span<const float>> feed(Run& run, bool prompt, bool another_follows);
  Result<std::span<const float>> feed_chunk(Run& run, std::size_t count, bool another_follows);
  Status generate(Run& run);
  void emit(const Run& run, const ipc::Message& message);
  ipc::Timings now() const;

  Model& model_;
  const TrunkReader& trunk_;
  const ExpertReader& experts_;
  Limits limits_;
  std::optional<Session> session_;
  ipc::Timings prefill_;
  ipc::Timings spent_;
  std::uint64_t emitting_ns_ = 0;  // wall clock spent in Emit so far
  std::uint64_t tokens_ = 0;
  std::uint64_t prefill_positions_ = 0;
};

}  // namespace k3::compute
