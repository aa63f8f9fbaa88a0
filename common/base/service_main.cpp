#include "common/base/service_main.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "common/base/log.h"

namespace k3 {

Result<int> stop_signal_fd() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  if (pthread_sigmask(SIG_BLOCK, &signals, nullptr) != 0) {
    return fail(ErrorCode::kFailed, "pthread_sigmask: {}", std::strerror(errno));
  }
  const int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return fail(ErrorCode::kFailed, "signalfd: {}", std::strerror(errno));
  return fd;
}

int service_main(CLI::App& app, int argc, char** argv, const std::string& service,
                 const std::function<Status()>& body) {
  std::string log_level = "info";
  app.add_option("--log-level", log_level, "trace, debug, info, warn or error")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help is printed; an error goes the way of every other, so that the supervisor finds it.
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "%s exit error=\"%s\"\n", service.c_str(), error.what());
    return exit_code(ErrorCode::kUsage);
  }
  try {
    Status status = start_logging(service, log_level);
    if (status) status = body();
    if (status) return 0;
    spdlog::error("exit error=\"{}\"", status.error().message);
    return exit_code(status.error().code);
  } catch (const std::exception& error) {
    spdlog::critical("bug exception=\"{}\"", error.what());
    return exit_code(ErrorCode::kBug);
  }
}

}  // namespace k3
