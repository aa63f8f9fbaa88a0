// The life of a service process: open, serve its event loop until a stop signal, end.
#pragma once

#include <spdlog/spdlog.h>

#include <memory>

#include "common/base/result.h"
#include "common/base/service_main.h"
#include "common/base/unique_fd.h"
#include "common/ipc/event_loop.h"

namespace k3::ipc {

// Runs a Service until SIGTERM, SIGINT or loop.stop(). `Service::create(EventLoop&, const
// Options&)` returns Result<std::unique_ptr<Service>>; its error is returned. Call once, from main,
// before any thread is started.
template <class Service>
Status serve(const typename Service::Options& options) {
  K3_ASSIGN(const int stop_fd, stop_signal_fd());
  const UniqueFd stop(stop_fd);
  EventLoop loop;
  K3_ASSIGN(const std::unique_ptr<Service> service, Service::create(loop, options));
  loop.watch(stop.get(), [&loop] { loop.stop(); });
  loop.run();
  spdlog::info("stopping");
  return {};
}

}  // namespace k3::ipc
