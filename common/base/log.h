// Logging set-up shared by every binary. Lines are `event key=value ...` (docs/architecture.md).
#pragma once

#include <string_view>

#include "common/base/result.h"

namespace k3 {

// Sends spdlog's default logger to stderr as "TIME LEVEL SERVICE[pid] message".
// `level` is trace, debug, info, warn or error; anything else is kUsage. Call once, from main.
Status start_logging(std::string_view service, std::string_view level);

// Changes the level of the running process; same names. Any thread.
Status set_log_level(std::string_view level);

}  // namespace k3
