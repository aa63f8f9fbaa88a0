#include "common/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>

namespace k3 {

Status set_log_level(std::string_view level) {
  for (const char* known : {"trace", "debug", "info", "warn", "error"}) {
    if (level == known) {
      spdlog::set_level(spdlog::level::from_str(known));
      return {};
    }
  }
  return fail(ErrorCode::kUsage, "log level \"{}\": expected trace, debug, info, warn or error",
              level);
}

Status start_logging(std::string_view service, std::string_view level) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>(std::string(service), std::move(sink));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %n[%P] %v");
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  return set_log_level(level);
}

}  // namespace k3
