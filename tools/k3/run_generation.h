// One generation over a pipeline whose compute worker may be restarted at any moment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "common/ipc/messages.h"
#include "tools/k3/pipeline_link.h"

namespace k3::cli {

struct GenerationRequest {
  std::vector<std::int32_t> prompt_ids;
  std::uint32_t max_tokens = 0;
  std::vector<std::int32_t> stop_ids;
  ipc::LogitsWanted logits = ipc::LogitsWanted::kNone;
  bool recompute = false;
};

struct GeneratedToken {
  std::int32_t id = 0;
  std::uint32_t position = 0;  // in the whole sequence: prompt length + index
  PipelineLink::Clock::time_point at;
  ipc::Timings timings;  // of the pass that chose it
};

// What happens meanwhile, in order.
struct GenerationEvents {
  std::function<void(std::uint32_t done, std::uint32_t total)> on_progress;
  // kStopped ends the generation early; another error fails it.
  std::function<Status(const GeneratedToken&)> on_token;
  std::function<void(std::uint32_t position, std::span<const float> row)> on_logits;
};

struct Generation {
  std::vector<GeneratedToken> tokens;
  ipc::FinishReason reason = ipc::FinishReason::kLength;
  PipelineLink::Clock::time_point begin;
  PipelineLink::Clock::time_point end;
  ipc::Timings prefill;  // as reported; zero when the worker died before its report
  // Why it failed: what was generated before is here all the same, and `reason` means nothing.
  std::optional<Error> failure;
};

// Runs `request` to its end. After a loss of the compute worker the prompt and the tokens so far
// are submitted again with the remaining budget; every token is delivered once. A stop signal
// cancels and is no failure: reason kCancelled. Failures: the worker's own, a token that does not
// follow the last one (kFailed), the error of on_token, or a stage that cannot come back.
Generation generate(PipelineLink& link, const GenerationRequest& request,
                    const GenerationEvents& events);

}  // namespace k3::cli
