// k3 run: generates text, over a running pipeline or a private one.
#include <memory>
#include <string>

#include "common/base/service_main.h"
#include "common/base/unique_fd.h"
#include "common/observe/memory.h"
#include "tools/k3/commands.h"
#include "tools/k3/output_file.h"
#include "tools/k3/pipeline_failure.h"
#include "tools/k3/pipeline_private.h"
#include "tools/k3/report.h"
#include "tools/k3/run_options.h"
#include "tools/k3/run_prepare.h"
#include "tools/k3/run_session.h"
#include "tools/k3/terminal.h"

namespace k3::cli {
namespace {

Status run_privately(const RunOptions& options, const Prompt& prompt) {
  K3_ASSIGN(const std::filesystem::path script, find_supervisor_script());
  const MemoryLimits limits = read_memory_limits();
  K3_ASSIGN(const PlannedModel model, prepare_model(options, prompt, limits));
  tell(plan_text(model.plan, limits));

  // From here on a signal must stop the pipeline in order.
  K3_ASSIGN(const int stop_fd, stop_signal_fd());
  const UniqueFd stop(stop_fd);
  K3_ASSIGN(PrivatePipeline pipeline,
            PrivatePipeline::start(script, pipeline_settings(options, model)));
  const Status status = run_session(options, prompt,
                                    {.run_dir = pipeline.run_dir(),
                                     .stop_fd = stop.get(),
                                     .fingerprint = model.checkpoint.fingerprint(),
                                     .own_pipeline = true});
  const Status stopped = pipeline.stop();
  K3_TRY(status);
  return stopped;
}

Status run_on_pipeline(const RunOptions& options, const Prompt& prompt) {
  K3_TRY(check_pipeline(*options.pipeline));
  K3_ASSIGN(const int stop_fd, stop_signal_fd());
  const UniqueFd stop(stop_fd);
  return run_session(options, prompt, {.run_dir = *options.pipeline, .stop_fd = stop.get()});
}

Status run(const RunOptions& options) {
  if (options.json) K3_TRY(check_output(*options.json, "--json", Output::kReplaced));
  if (options.trace) K3_TRY(check_output(*options.trace, "--trace", Output::kReplaced));
  if (options.logits) {
    K3_TRY(check_output(*options.logits, "--dump-logits", Output::kInPlace));
  }
  if (options.json && options.json == options.logits) {
    return fail(ErrorCode::kUsage, "--json and --dump-logits name the same file, {}",
                options.json->string());
  }
  K3_ASSIGN(const Prompt prompt, read_prompt(options));
  return options.pipeline ? run_on_pipeline(options, prompt) : run_privately(options, prompt);
}

}  // namespace

void add_run(CLI::App& root, Action& action) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = root.add_subcommand("run", "generate text (greedy decoding)");
  add_run_flags(*command, *options);
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace k3::cli
