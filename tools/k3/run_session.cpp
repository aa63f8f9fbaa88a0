#include "tools/k3/run_session.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "tools/k3/pipeline_link.h"
#include "tools/k3/pipeline_memory.h"
#include "tools/k3/progress_bar.h"
#include "tools/k3/report.h"
#include "tools/k3/run_generation.h"
#include "tools/k3/run_logits.h"
#include "tools/k3/run_report.h"
#include "tools/k3/run_text.h"
#include "tools/k3/span_recording.h"
#include "tools/k3/terminal.h"

namespace k3::cli {
namespace {

// Asks `question` and returns the answer of type Answer.
template <class Answer>
Result<Answer> ask_for(PipelineLink& link, Stage stage, const ipc::Message& question) {
  K3_ASSIGN(ipc::Message message, link.ask(stage, question));
  if (auto* answer = std::get_if<Answer>(&message)) return std::move(*answer);
  return fail(ErrorCode::kFailed, "{} answered with another kind of message", name_of(stage));
}

// Whether the pipeline runs the checkpoint in `directory`.
Status check_model(const std::filesystem::path& directory, const PipelineFacts& facts) {
  Checkpoint::Options part;
  if (facts.compute.layers < facts.compute.model_layers) {
    part.layers = static_cast<int>(facts.compute.layers);
  }
  K3_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(directory, part));
  if (checkpoint.fingerprint() == facts.fingerprint) return {};
  return fail(ErrorCode::kIncompatible, "the pipeline runs model {}, {} is {}", facts.fingerprint,
              directory.string(), checkpoint.fingerprint());
}

Result<std::vector<std::int32_t>> encode_prompt(PipelineLink& link, const Prompt& prompt,
                                                const PipelineFacts& facts) {
  if (prompt.kind == Prompt::Kind::kIds) {
    K3_TRY(check_ids(prompt.ids, facts.compute.vocab, "--ids"));
    return prompt.ids;
  }
  if (!facts.tokenizer.has_vocabulary) {
    return fail(ErrorCode::kUsage,
                "the checkpoint has no vocabulary, so a prompt is given as --ids only");
  }
  ipc::Message question = ipc::Encode{{{prompt.text, false}}};
  if (prompt.kind == Prompt::Kind::kChat) question = ipc::EncodeChat{prompt.text, prompt.thinking};
  K3_ASSIGN(ipc::Encoded encoded, ask_for<ipc::Encoded>(link, Stage::kTokenizer, question));
  return std::move(encoded.ids);
}

Result<GenerationRequest> make_request(PipelineLink& link, const RunOptions& options,
                                       const Prompt& prompt, const PipelineFacts& facts) {
  GenerationRequest request;
  K3_ASSIGN(request.prompt_ids, encode_prompt(link, prompt, facts));
  K3_TRY(check_ids(options.stop_ids, facts.compute.vocab, "--stop-id"));
  request.stop_ids = options.stop_ids;
  if (prompt.kind == Prompt::Kind::kChat) {
    const auto& ends = facts.tokenizer.stop_ids;
    request.stop_ids.insert(request.stop_ids.end(), ends.begin(), ends.end());
  }
  request.max_tokens = options.max_tokens;
  if (options.logits) request.logits = options.logits_positions;
  request.recompute = options.recompute;
  return request;
}

void print_token_line(const GeneratedToken& token, std::size_t index, const std::string& text) {
  const auto ms = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e6; };
  tell(fmt::format(
      "token {} id={} position={} ms={:.1f} trunk_wait_ms={:.1f} experts_wait_ms={:.1f} "
      "messaging_ms={:.1f} {}\n",
      index, token.id, token.position, ms(token.timings.total_ns), ms(token.timings.wait_trunk_ns),
      ms(token.timings.wait_experts_ns), ms(token.timings.messaging_ns),
      text.empty() ? "" : fmt::format("text=\"{}\"", text)));
}

// Generates with everything the user sees meanwhile.
Generation generate_visibly(PipelineLink& link, const GenerationRequest& request, bool verbose,
                            TextStream& text, LogitsFile* logits) {
  auto bar = std::make_unique<ProgressBar>("prefill");
  std::size_t index = 0;
  GenerationEvents events;
  events.on_progress = [&](std::uint32_t done, std::uint32_t total) {
    if (bar) bar->update(done, total);
  };
  events.on_token = [&](const GeneratedToken& token) -> Status {
    bar.reset();
    const Result<std::string> printed = text.push(token.id);
    if (verbose) print_token_line(token, index, printed.value_or(""));
    ++index;
    K3_TRY(printed);
    return {};
  };
  events.on_logits = [&](std::uint32_t position, std::span<const float> row) {
    if (logits) logits->add(position, row);
  };
  Generation generation = generate(link, request, events);
  bar.reset();
  Status ended = text.finish();
  if (!ended && !generation.failure) generation.failure = std::move(ended.error());
  return generation;
}

// The report on the terminal and in the file; a failure to write comes before the early stop.
Status deliver(const RunOptions& options, const RunReport& report, LogitsFile* logits) {
  tell(report_summary(report));
  const Status dumped = logits ? logits->finish() : Status{};
  if (options.json) K3_TRY(write_report(report, *options.json));
  K3_TRY(dumped);
  if (report.finish_reason != "cancelled") return {};
  return fail(ErrorCode::kStopped, "stopped early after {} tokens", report.generated_ids.size());
}

}  // namespace

Result<PipelineFacts> describe(PipelineLink& link) {
  PipelineFacts facts;
  K3_ASSIGN(facts.tokenizer,
            ask_for<ipc::TokenizerDescription>(link, Stage::kTokenizer, ipc::DescribeTokenizer{}));
  K3_ASSIGN(facts.trunk, ask_for<ipc::TrunkDescription>(link, Stage::kTrunk, ipc::DescribeTrunk{}));
  K3_ASSIGN(facts.experts,
            ask_for<ipc::ExpertsDescription>(link, Stage::kExperts, ipc::DescribeExperts{}));
  K3_ASSIGN(facts.compute,
            ask_for<ipc::ComputeDescription>(link, Stage::kCompute, ipc::DescribeCompute{}));
  facts.fingerprint = link.welcome(Stage::kCompute)->fingerprint;
  return facts;
}

Status run_session(const RunOptions& options, const Prompt& prompt, const SessionSetup& setup) {
  PeakMemory memory;
  K3_ASSIGN(const std::unique_ptr<PipelineLink> link,
            PipelineLink::create({.run_dir = setup.run_dir,
                                  .stop_fd = setup.stop_fd,
                                  .fingerprint = setup.fingerprint,
                                  .on_up = [&memory](Stage stage, std::uint32_t pid) {
                                    memory.watch(std::string(name_of(stage)), pid);
                                  }}));
  K3_TRY(link->wait_until_up());
  K3_ASSIGN(const PipelineFacts facts, describe(*link));
  std::unique_ptr<SpanRecording> spans;
  if (options.trace) {
    K3_ASSIGN(spans, SpanRecording::start(setup.run_dir));
  }
  if (setup.fingerprint.empty() && options.model) K3_TRY(check_model(*options.model, facts));
  K3_ASSIGN(const GenerationRequest request, make_request(*link, options, prompt, facts));
  if (!setup.own_pipeline) {
    link->refresh_stats();
    for (const Stage stage : kStages) link->stats(stage).start_here();
  }

  std::optional<LogitsFile> logits;
  if (options.logits) {
    const auto last = static_cast<std::uint32_t>(request.prompt_ids.size()) - 1;
    const bool all = options.logits_positions == ipc::LogitsWanted::kAll;
    logits.emplace(*options.logits, all ? 0 : last, facts.compute.vocab);
  }
  LogitsFile* const rows = logits ? &*logits : nullptr;
  TextStream text(*link, facts.tokenizer.has_vocabulary);
  const Generation generation = generate_visibly(*link, request, options.verbose, text, rows);
  const Status traced = spans ? spans->write(*options.trace) : Status{};
  if (generation.failure && generation.tokens.empty()) {
    return tl::unexpected<Error>(*generation.failure);
  }
  link->refresh_stats();
  RunReport report = make_report(*link, facts, request, generation);
  if (options.model) report.model = std::filesystem::absolute(*options.model).string();
  report.text = text.text();
  report.peak_memory_bytes = memory.peak_bytes();
  Status delivered = deliver(options, report, rows);
  if (delivered) delivered = traced;
  if (!generation.failure) return delivered;
  if (!delivered) tell(fmt::format("k3: {}\n", delivered.error().message));
  return tl::unexpected<Error>(*generation.failure);
}

}  // namespace k3::cli
