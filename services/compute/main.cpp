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
  app.add_option("--run", options.run_dir, "run directory of the pipeline's endpoints")->required();
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
  return k3::service_main(app, argc, argv, "k3-compute",
                          [&] { return serve(options, bind == "auto"); });
}
