#include "services/compute/generator.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "common/observe/spans.h"
#include "services/compute/messaging_timer.h"

namespace k3::compute {

namespace {

ipc::Timings operator-(const ipc::Timings& later, const ipc::Timings& earlier) {
  return {later.total_ns - earlier.total_ns, later.wait_trunk_ns - earlier.wait_trunk_ns,
          later.wait_experts_ns - earlier.wait_experts_ns,
          later.messaging_ns - earlier.messaging_ns};
}

void add(ipc::Timings& sum, const ipc::Timings& more) {
  sum.total_ns += more.total_ns;
  sum.wait_trunk_ns += more.wait_trunk_ns;
  sum.wait_experts_ns += more.wait_experts_ns;
  sum.messaging_ns += more.messaging_ns;
}

}  // namespace

Result<std::int32_t> choose_greedily(std::span<const float> logits, std::uint32_t position) {
  const spans::Scope span("choose", position);
  std::size_t best = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (std::isnan(logits[id])) {
      return fail(ErrorCode::kWeights, "position {}: the logit of id {} is not a number", position,
                  id);
    }
    if (logits[id] > logits[best]) best = id;
  }
  return static_cast<std::int32_t>(best);
}

struct Generator::Run {
  const ipc::Generate& request;
  const Emit& emit;
  std::vector<std::int32_t> sequence;  // prompt and generated ids
  std::uint32_t logits_sent = 0;       // positions whose logits have been emitted (kAll)
};

Generator::Generator(Model& model, const TrunkReader& trunk, const ExpertReader& experts,
                     Limits limits)
    : model_(model), trunk_(trunk), experts_(experts), limits_(limits) {}

Status Generator::validate(const ipc::Generate& request) const {
  if (request.prompt_ids.empty()) return fail(ErrorCode::kUsage, "the prompt is empty");
  const int vocab = model_.config().vocab;
  for (const std::int32_t id : request.prompt_ids) {
    if (id < 0 || id >= vocab) {
      return fail(ErrorCode::kUsage, "prompt id {} is outside 0..{}", id, vocab - 1);
    }
  }
  if (request.max_tokens == 0) return fail(ErrorCode::kUsage, "max_tokens is 0");
  const std::uint64_t positions = request.prompt_ids.size() + std::uint64_t{request.max_tokens};
  if (positions > limits_.max_positions) {
    return fail(ErrorCode::kUsage,
                "{} prompt ids and {} tokens to generate are {} positions, at most {} fit",
                request.prompt_ids.size(), request.max_tokens, positions, limits_.max_positions);
  }
  return {};
}

Status Generator::run(const ipc::Generate& request, const Emit& emit) {
  if (!session_) session_.emplace(model_.new_session());
  session_->reset();
  prefill_ = {};
  const ipc::Timings before = now();
  Run run{.request = request, .emit = emit, .sequence = request.prompt_ids};
  Status status = generate(run);
  add(spent_, now() - before);
  return status;
}

Status Generator::generate(Run& run) {
  const ipc::Generate& request = run.request;
  const auto stops = [&](std::int32_t id) {
    return std::find(request.stop_ids.begin(), request.stop_ids.end(), id) !=
           request.stop_ids.end();
  };
  for (std::uint32_t index = 0; index < request.max_tokens; ++index) {
    const spans::Scope span("token", index);
    const ipc::Timings before = now();
    if (request.recompute) session_->reset();
    K3_ASSIGN(const std::span<const float> logits,
              feed(run, index == 0, index + 1 < request.max_tokens));
    const auto position = static_cast<std::uint32_t>(run.sequence.size());
    K3_ASSIGN(const std::int32_t id, choose_greedily(logits, position - 1));
    const ipc::Timings timings = now() - before;
    if (index == 0) prefill_ = timings;
    if (request.logits == ipc::LogitsWanted::kLast) {
      emit(run, ipc::Logits{request.request, position - 1, {logits.begin(), logits.end()}});
    }
    run.sequence.push_back(id);
    ++tokens_;
    emit(run, ipc::Token{request.request, index, position, id, timings});
    if (stops(id)) {
      emit(run, ipc::Finished{request.request, ipc::FinishReason::kStop, prefill_});
      return {};
    }
  }
  emit(run, ipc::Finished{request.request, ipc::FinishReason::kLength, prefill_});
  return {};
}

Result<std::span<const float>> Generator::feed(Run& run, bool prompt, bool another_follows) {
  const std::size_t total = run.sequence.size();
  std::span<const float> logits;
  while (session_->length() < total) {
    const std::size_t count = std::min(limits_.chunk, total - session_->length());
    const bool last = session_->length() + count == total;
    K3_ASSIGN(logits, feed_chunk(run, count, !last || another_follows));
    if (prompt) {
      prefill_positions_ += count;
      emit(run, ipc::Progress{run.request.request, session_->length(),
                              static_cast<std::uint32_t>(total)});
    }
  }
  const std::size_t vocab = model_.config().vocab;
  return logits.last(vocab);
}

Result<std::span<const float>> Generator::feed_chunk(Run& run, std::size_t count,
                                                     bool another_follows) {
  const bool all = run.request.logits == ipc::LogitsWanted::kAll;
  const std::uint32_t first = session_->length();
  std::vector<Row> rows;
  for (std::uint32_t position = first; position < first + count; ++position) {
    rows.push_back({.id = run.sequence[position],
                    .session = &*session_,
                    .position = position,
                    .logits_wanted = all || position + 1 == run.sequence.size()});
  }
  K3_ASSIGN(const std::span<const float> logits, model_.forward(rows, another_follows));
  if (!all) return logits;
  const std::size_t vocab = model_.config().vocab;
  for (std::uint32_t position = first; position < first + count; ++position) {
    if (position < run.logits_sent) continue;  // recomputed
    const auto row = logits.subspan((position - first) * vocab, vocab);
    emit(run, ipc::Logits{run.request.request, position, {row.begin(), row.end()}});
    run.logits_sent = position + 1;
  }
  return logits;
}

void Generator::emit(const Run& run, const ipc::Message& message) {
  const spans::Scope span("messaging");
  const MessagingTimer timer(emitting_ns_);
  run.emit(message);
}

ipc::Timings Generator::now() const {
  const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
  return {static_cast<std::uint64_t>(std::chrono::nanoseconds(since_start).count()),
          trunk_.waited_ns(), experts_.waited_ns(),
          trunk_.messaging_ns() + experts_.messaging_ns() + model_.pumped_ns() + emitting_ns_};
}

}  // namespace k3::compute
