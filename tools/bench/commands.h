// The subcommands of `k3-bench`, one file each.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "common/base/result.h"

namespace k3::bench {

// What the chosen subcommand does once its flags are parsed.
using Action = std::function<Status()>;

// Each adds one subcommand with its flags to `root`; when it is the one called, `action` becomes
// its action. `root` and `action` outlive parsing.
void add_kernels(CLI::App& root, Action& action);  // kernels.cpp
void add_e2e(CLI::App& root, Action& action);      // e2e.cpp

}  // namespace k3::bench
