// k3-experts: caches the routed experts in shared memory and reads those that are missing
// (README.md).
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "common/base/service_main.h"
#include "common/base/unique_fd.h"
#include "common/ipc/event_loop.h"
#include "services/experts/experts_service.h"

namespace {

using k3::experts::ExpertsService;

k3::Status serve(const ExpertsService::Options& options) {
  K3_ASSIGN(const int stop_fd, k3::stop_signal_fd());
  const k3::UniqueFd stop(stop_fd);
  k3::ipc::EventLoop loop;
  K3_ASSIGN(const std::unique_ptr<ExpertsService> service, ExpertsService::create(loop, options));
  loop.watch(stop.get(), [&loop] { loop.stop(); });
  loop.run();
  spdlog::info("stopping");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  ExpertsService::Options options;
  CLI::App app("Caches the routed experts in shared memory and reads those that are missing.",
               "k3-experts");
  app.add_option("--run", options.run_dir, "run directory of the pipeline's endpoints")->required();
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
  return k3::service_main(app, argc, argv, "k3-experts", [&] { return serve(options); });
}
