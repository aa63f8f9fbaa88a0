// k3-experts-pagecache: serves the routed experts out of the shard files and the kernel's page
// cache (README.md).
#include <CLI/CLI.hpp>
#include <string>

#include "common/base/service_main.h"
#include "common/ipc/serve.h"
#include "services/experts_pagecache/pagecache_service.h"

using k3::pagecache::PageCacheService;

int main(int argc, char** argv) {
  PageCacheService::Options options;
  std::string unused;
  CLI::App app("Serves the routed experts out of the shard files and the kernel's page cache.",
               "k3-experts-pagecache");
  app.add_option("--run", options.run_dir, "run directory of the pipeline's endpoints")->required();
  app.add_option("--model", options.model, "checkpoint directory")->required();
  app.add_option("--layers", options.layers, "serve only the first N layers")
      ->check(CLI::PositiveNumber);
  app.add_option("--io-threads", options.io_threads, "reader threads")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  for (const char* flag : {"--work", "--cache-gb"}) {
    app.add_option(flag, unused, "of no effect: a command line for k3-experts serves here too");
  }
  return k3::service_main(app, argc, argv, "k3-experts-pagecache",
                          [&] { return k3::ipc::serve<PageCacheService>(options); });
}
