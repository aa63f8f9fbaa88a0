// k3-trunk: reads the weights used on every token and hands them out unit by unit (README.md).
#include <CLI/CLI.hpp>

#include "common/base/service_main.h"
#include "common/ipc/serve.h"
#include "services/trunk/trunk_service.h"

using k3::trunk::TrunkService;

int main(int argc, char** argv) {
  TrunkService::Options options;
  CLI::App app("Streams the weights used on every token from disk into shared memory.", "k3-trunk");
  app.add_option("--run", options.run_dir, "run directory of the pipeline's endpoints")->required();
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
  return k3::service_main(app, argc, argv, "k3-trunk",
                          [&] { return k3::ipc::serve<TrunkService>(options); });
}
