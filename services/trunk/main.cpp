// k3-trunk: reads the weights used on every token and hands them out unit by unit (README.md).
#include <CLI/CLI.hpp>

#include "common/base/service_main.h"
#include "common/ipc/serve.h"
#include "services/trunk/bench.h"
#include "services/trunk/trunk_service.h"

using k3::trunk::BenchOptions;
using k3::trunk::TrunkService;

namespace {

// Returns the flag that chooses to measure instead of to serve.
CLI::Option* add_bench_flags(CLI::App& app, BenchOptions& bench) {
  CLI::Option* measure = app.add_flag("--bench")->description(
      "serve nobody: measure reading units from a cold page cache");
  app.add_option("--bench-depths", bench.depths, "units in flight")
      ->delimiter(',')
      ->check(CLI::Range(1, 64))
      ->needs(measure)
      ->capture_default_str();
  app.add_option("--bench-units-mb", bench.units_mb, "unit sizes in MB (default: --unit-mb)")
      ->delimiter(',')
      ->needs(measure);
  app.add_option("--bench-gb", bench.gb, "most GB read in one measurement")
      ->check(CLI::PositiveNumber)
      ->needs(measure)
      ->capture_default_str();
  app.add_option("--repeat", bench.repeat, "measurements of each row of --bench")
      ->check(CLI::Range(1, 1000))
      ->needs(measure)
      ->capture_default_str();
  app.add_option("--json", bench.json, "also write the figures of --bench to this file")
      ->needs(measure);
  return measure;
}

}  // namespace

int main(int argc, char** argv) {
  TrunkService::Options options;
  CLI::App app("Streams the weights used on every token from disk into shared memory.", "k3-trunk");
  CLI::Option* run =
      app.add_option("--run", options.run_dir, "run directory of the pipeline's endpoints");
  app.add_option("--model", options.model, "checkpoint directory")->required();
  app.add_option("--trunk", options.packed_trunk,
                 "directory of trunk.k3t written by k3 pack; without it the shards are read");
  app.add_option("--trunk-gb", options.trunk_gb,
                 "memory for units in GB (10^9 bytes): a ring, and pinned units beyond it")
      ->capture_default_str();
  app.add_option("--unit-mb", options.unit_mb,
                 "largest unit in MB (10^6 bytes) when the shards are read")
      ->capture_default_str();
  app.add_option("--layers", options.layers, "serve only the first N layers")
      ->check(CLI::PositiveNumber);
  app.add_option("--io-threads", options.io_threads, "reader threads")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  BenchOptions bench;
  CLI::Option* measure = add_bench_flags(app, bench)->excludes(run);
  return k3::service_main(app, argc, argv, "k3-trunk", [&]() -> k3::Status {
    bench.service = options;
    if (measure->count() > 0) return k3::trunk::bench(bench);
    if (run->count() == 0) return k3::fail(k3::ErrorCode::kUsage, "--run is required");
    return k3::ipc::serve<TrunkService>(options);
  });
}
