// k3-compute: runs the model over the trunk and expert services and generates tokens (README.md).
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "common/base/service_main.h"
#include "common/base/unique_fd.h"
#include "common/ipc/event_loop.h"
#include "services/compute/compute_service.h"
#include "services/compute/cpus.h"
#include "services/compute/replay.h"

namespace {

using k3::compute::ComputeService;

k3::Status serve(ComputeService::Options options, bool bind) {
  K3_ASSIGN(const int stop_fd, k3::stop_signal_fd());
  const k3::UniqueFd stop(stop_fd);
  k3::ipc::EventLoop loop;
  loop.watch(stop.get(), [&loop] { loop.stop(); });
  if (options.threads == 0) options.threads = k3::compute::usable_cores();
  auto service = ComputeService::create(loop, options);
  if (!service && service.error().code == k3::ErrorCode::kStopped) return {};
  if (!service) return tl::unexpected<k3::Error>(std::move(service.error()));
  // Now that the threads of the messages run, which stay free.
  const bool bound = bind && k3::compute::bind_threads(options.threads);
  spdlog::info("threads count={} bound={}", options.threads, bound);
  K3_TRY((*service)->run());
  spdlog::info("stopping");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  ComputeService::Options options;
  CLI::App app("Runs the model: sessions, all arithmetic, greedy sampling.", "k3-compute");
  CLI::Option* run =
      app.add_option("--run", options.run_dir, "run directory of the pipeline's endpoints");
  app.add_option("--threads", options.threads,
                 "threads (default: the physical cores this process may use)")
      ->check(CLI::Range(1, 1024));
  std::string bind = "auto";
  app.add_option(
         "--bind", bind,
         "auto: each thread to a physical core of its own when they are as many; off: never")
      ->check(CLI::IsMember({"auto", "off"}))
      ->capture_default_str();
  app.add_option("--chunk", options.chunk, "prompt positions of one prefill pass")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--isa", options.isa, "kernel table (default: the best this CPU has)")
      ->envname("K3_ISA");
  app.add_option("--mla-norm-eps", options.mla_norm_eps,
                 "epsilon of the two low-rank norms of MLA, which no configuration carries")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--max-positions", options.max_positions,
                 "most positions of one sequence; its cache is allocated as it grows")
      ->check(CLI::Range(2, 1 << 30))
      ->capture_default_str();
  CLI::Option* record =
      app.add_option("--record", options.record, "record what every pass computes to this file");
  app.add_option("--record-max-mb", options.record_max_mb,
                 "largest recording in MB (10^6 bytes); it ends there")
      ->check(CLI::Range(0.001, 1e9))
      ->capture_default_str()
      ->needs(record);
  k3::compute::ReplayOptions replay;
  CLI::Option* recording =
      app.add_option("--replay", replay.recording,
                     "serve nobody: run the passes of this recording again and compare")
          ->excludes(run)
          ->excludes(record);
  CLI::Option* model = app.add_option("--model", replay.model, "checkpoint directory for --replay")
                           ->needs(recording);
  recording->needs(model);
  app.add_option("--work", replay.work,
                 "directory of experts.k3x for --replay (default: MODEL/.k3)")
      ->needs(recording);
  app.add_option("--trunk", replay.trunk,
                 "directory of trunk.k3t for --replay (default: the shards as they lie)")
      ->needs(recording);
  app.add_option("--json", replay.json, "also write the figures of --replay to this file")
      ->needs(recording);
  return k3::service_main(app, argc, argv, "k3-compute", [&]() -> k3::Status {
    replay.threads = options.threads;
    replay.isa = options.isa;
    if (recording->count() > 0) return k3::compute::replay(replay);
    if (run->count() == 0) return k3::fail(k3::ErrorCode::kUsage, "--run is required");
    return serve(options, bind == "auto");
  });
}
