// k3 trace: what the services of a running pipeline do, as a timeline.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/service_main.h"
#include "common/base/unique_fd.h"
#include "common/ipc/event_loop.h"
#include "tools/k3/chrome_trace.h"
#include "tools/k3/commands.h"
#include "tools/k3/output_file.h"
#include "tools/k3/pipeline_failure.h"
#include "tools/k3/span_collector.h"
#include "tools/k3/terminal.h"

namespace k3::cli {
namespace {

constexpr std::chrono::milliseconds kTurn{100};

struct TraceOptions {
  std::filesystem::path run_dir;
  std::filesystem::path out;
  std::optional<double> seconds;
};

Status trace(const TraceOptions& options) {
  K3_TRY(check_pipeline(options.run_dir));
  K3_TRY(check_output(options.out, "--out", Output::kReplaced));
  K3_ASSIGN(const int stop_fd, stop_signal_fd());
  const UniqueFd stop(stop_fd);
  ipc::EventLoop loop;
  K3_ASSIGN(const std::unique_ptr<SpanCollector> collector,
            SpanCollector::create(loop, options.run_dir));
  loop.watch(stop.get(), [&loop] { loop.stop(); });
  const auto begin = ipc::EventLoop::Clock::now();
  const auto over = [&] {
    const std::chrono::duration<double> passed = ipc::EventLoop::Clock::now() - begin;
    return options.seconds && passed.count() >= *options.seconds;
  };
  while (!loop.stopped() && !over()) loop.run_once(kTurn);
  const std::vector<ProcessSpans> processes = collector->finish();
  std::size_t spans = 0;
  std::uint64_t dropped = 0;
  for (const ProcessSpans& process : processes) {
    spans += process.spans.size();
    dropped += process.dropped;
  }
  K3_TRY(write_output(options.out, chrome_trace(processes)));
  tell(fmt::format("{} spans of {} processes, {} dropped: {}\n", spans, processes.size(), dropped,
                   options.out.string()));
  if (!processes.empty()) return {};
  return fail(ErrorCode::kUnavailable, "{}: no service was up", options.run_dir.string());
}

}  // namespace

void add_trace(CLI::App& root, Action& action) {
  const auto options = std::make_shared<TraceOptions>();
  CLI::App* const command = root.add_subcommand(
      "trace", "record what a running pipeline does, until Ctrl-C, for chrome://tracing");
  command->add_option("--pipeline", options->run_dir, "run directory of the pipeline")->required();
  command->add_option("--out", options->out, "write the timeline to this JSON file")->required();
  command->add_option("--seconds", options->seconds, "stop by itself after this time")
      ->check(CLI::PositiveNumber);
  command->callback([options, &action] { action = [options] { return trace(*options); }; });
}

}  // namespace k3::cli
