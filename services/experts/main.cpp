// k3-experts: caches the routed experts in shared memory and reads those that are missing
// (README.md).
#include <CLI/CLI.hpp>

#include "common/base/service_main.h"
#include "common/ipc/serve.h"
#include "services/experts/experts_service.h"
#include "services/experts/replay.h"

using k3::experts::ExpertsService;
using k3::experts::ReplayOptions;

int main(int argc, char** argv) {
  ExpertsService::Options options;
  CLI::App app("Caches the routed experts in shared memory and reads those that are missing.",
               "k3-experts");
  CLI::Option* run =
      app.add_option("--run", options.run_dir, "run directory of the pipeline's endpoints");
  app.add_option("--model", options.model, "checkpoint directory")->required();
  app.add_option("--work", options.work,
                 "directory of experts.k3x written by k3 index (default: MODEL/.k3)");
  app.add_option("--cache-gb", options.cache_gb, "memory for experts in GB (10^9 bytes)")
      ->capture_default_str();
  app.add_option("--layers", options.layers, "serve only the first N layers")
      ->check(CLI::PositiveNumber);
  app.add_option("--io-threads", options.io_threads, "reader threads")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--policy", options.policy, "which expert gives up its slot: recurrence or lru")
      ->capture_default_str();
  app.add_option("--trace", options.trace, "add every demand to this expert trace")->needs(run);
  ReplayOptions replay;
  CLI::Option* trace = app.add_option("--replay", replay.trace,
                                      "serve nobody: measure cache and reader under this trace")
                           ->excludes(run);
  app.add_option("--json", replay.json, "also write the figures of --replay to this file")
      ->needs(trace);
  return k3::service_main(app, argc, argv, "k3-experts", [&]() -> k3::Status {
    replay.service = options;
    if (trace->count() > 0) return k3::experts::replay(replay);
    if (run->count() == 0) return k3::fail(k3::ErrorCode::kUsage, "--run is required");
    return k3::ipc::serve<ExpertsService>(options);
  });
}
