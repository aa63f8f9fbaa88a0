// What every service's main shares: flags, logging, stop signals, the exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "common/base/result.h"

namespace k3 {

// A descriptor that becomes readable when SIGTERM or SIGINT arrives (a signalfd; the signals are
// blocked in this thread and in every thread started later).
// Call once, before any thread is started.
Result<int> stop_signal_fd();

// Parses the command line with `app`, starts logging at its --log-level, runs `body`, prints its
// error on one line and returns the exit code. Catches every exception (exit code 70).
int service_main(CLI::App& app, int argc, char** argv, const std::string& service,
                 const std::function<Status()>& body);

}  // namespace k3
