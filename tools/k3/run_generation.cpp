#include "tools/k3/run_generation.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <variant>

namespace k3::cli {
namespace {

// How long a cancelled worker may take to say so; it notices within a layer. Past that the
// connection is closed, which cancels as well.
constexpr std::chrono::milliseconds kCancelLimit{1000};

class Session {
 public:
  Session(PipelineLink& link, const GenerationRequest& request, const GenerationEvents& events)
      : link_(link), request_(request), events_(events) {}

  Generation run() {
    result_.begin = PipelineLink::Clock::now();
    if (Status status = run_to_end(); !status) {
      if (!finished_) cancel();
      if (status.error().code == ErrorCode::kStopped) {
        result_.reason = ipc::FinishReason::kCancelled;
      } else {
        result_.failure = std::move(status.error());
      }
    }
    result_.end = PipelineLink::Clock::now();
    return std::move(result_);
  }

 private:
  Status run_to_end() {
    while (!finished_) {
      K3_TRY(link_.wait([this] { return link_.has_received() || must_submit(); }));
      // Tokens of a worker that has died since are as good as any: take them first.
      if (link_.has_received()) {
        K3_TRY(handle(link_.receive()));
      } else {
        K3_TRY(submit());
      }
    }
    return {};
  }

  bool must_submit() const {
    return link_.up(Stage::kCompute) && link_.connections(Stage::kCompute) != connection_;
  }

  // Asks for what is still missing.
  Status submit() {
    connection_ = link_.connections(Stage::kCompute);
    if (complete()) return {};  // the worker died between the last token and its report
    ipc::Generate generate;
    generate.request = ++request_number_;
    generate.prompt_ids = request_.prompt_ids;
    for (const GeneratedToken& token : result_.tokens) generate.prompt_ids.push_back(token.id);
    generate.max_tokens = request_.max_tokens - emitted();
    generate.stop_ids = request_.stop_ids;
    generate.logits = request_.logits;
    generate.recompute = request_.recompute;
    emitted_before_ = emitted();
    const Result<std::uint64_t> sent = link_.send(Stage::kCompute, generate);
    if (sent) {
      sequence_ = *sent;
    } else if (sent.error().code == ErrorCode::kUnavailable) {
      connection_ = 0;  // lost in this very moment: submit again when it is back
    } else {
      return tl::unexpected<Error>(sent.error());
    }
    return {};
  }

  // Whether the tokens so far are the whole answer.
  bool complete() {
    const bool stopped =
        !result_.tokens.empty() && std::find(request_.stop_ids.begin(), request_.stop_ids.end(),
                                             result_.tokens.back().id) != request_.stop_ids.end();
    if (!stopped && emitted() < request_.max_tokens) return false;
    result_.reason = stopped ? ipc::FinishReason::kStop : ipc::FinishReason::kLength;
    finished_ = true;
    return true;
  }

  Status handle(const PipelineLink::Received& received) {
    const ipc::Message& body = received.envelope.body;
    if (const auto* token = std::get_if<ipc::Token>(&body)) {
      if (token->request == request_number_) return handle_token(*token, received.at);
    } else if (const auto* logits = std::get_if<ipc::Logits>(&body)) {
      if (logits->request == request_number_ && events_.on_logits) {
        events_.on_logits(logits->position, logits->values);
      }
    } else if (const auto* progress = std::get_if<ipc::Progress>(&body)) {
      if (progress->request == request_number_ && events_.on_progress) {
        events_.on_progress(progress->done, progress->total);
      }
    } else if (const auto* finished = std::get_if<ipc::Finished>(&body)) {
      if (finished->request == request_number_) {
        result_.reason = finished->reason;
        result_.prefill = finished->prefill;
        finished_ = true;
      }
    } else if (const auto* error = std::get_if<ipc::ErrorReply>(&body)) {
      // kUnavailable: this worker is stopping; its successor is asked.
      const bool ours = received.envelope.header.in_reply_to == sequence_;
      if (ours && error->error.code != ErrorCode::kUnavailable) {
        finished_ = true;
        return tl::unexpected<Error>(error->error);
      }
    }
    return {};
  }

  Status handle_token(const ipc::Token& token, PipelineLink::Clock::time_point at) {
    const std::uint32_t expected = emitted() - emitted_before_;
    if (token.index != expected || emitted() >= request_.max_tokens) {
      return fail(ErrorCode::kFailed, "compute sent token {} of its request, expected {} of {}",
                  token.index, expected, request_.max_tokens - emitted_before_);
    }
    const auto position = static_cast<std::uint32_t>(request_.prompt_ids.size()) + emitted();
    result_.tokens.push_back({token.id, position, at, token.timings});
    return events_.on_token ? events_.on_token(result_.tokens.back()) : Status{};
  }

  // Ends the request at the worker, which may be in the middle of it.
  void cancel() {
    if (request_number_ == 0 || !link_.up(Stage::kCompute)) return;
    if (!link_.send(Stage::kCompute, ipc::Cancel{request_number_})) return;
    link_.wait_briefly([this] { return take_cancelled() || !link_.up(Stage::kCompute); },
                       kCancelLimit);
  }

  // Drops what still arrives; true once the worker has ended the request.
  bool take_cancelled() {
    while (link_.has_received()) {
      const PipelineLink::Received received = link_.receive();
      const ipc::Message& body = received.envelope.body;
      if (std::holds_alternative<ipc::Finished>(body) ||
          std::holds_alternative<ipc::ErrorReply>(body)) {
        return true;
      }
    }
    return false;
  }

  std::uint32_t emitted() const { return static_cast<std::uint32_t>(result_.tokens.size()); }

  PipelineLink& link_;
  const GenerationRequest& request_;
  const GenerationEvents& events_;
  Generation result_;
  bool finished_ = false;
  std::uint64_t connection_ = 0;  // the connection submitted on; connections count from 1
  std::uint64_t request_number_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint32_t emitted_before_ = 0;  // tokens that were part of the submitted prompt
};

}  // namespace

Generation generate(PipelineLink& link, const GenerationRequest& request,
                    const GenerationEvents& events) {
  return Session(link, request, events).run();
}

}  // namespace k3::cli
