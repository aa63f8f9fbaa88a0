// The subcommands of `k3`, one file each.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "common/base/result.h"

namespace k3::cli {

// What the chosen subcommand does once its flags are parsed. The returned error's code is the exit
// code; its message is printed on one line.
using Action = std::function<Status()>;

// Each adds one subcommand with its flags to `root`; when it is the one called, `action` becomes
// its action. `root` and `action` outlive parsing.
void add_run(CLI::App& root, Action& action);              // run.cpp
void add_plan(CLI::App& root, Action& action);             // plan.cpp
void add_status(CLI::App& root, Action& action);           // status.cpp
void add_control(CLI::App& root, Action& action);          // control.cpp
void add_trace(CLI::App& root, Action& action);            // trace.cpp
void add_pack(CLI::App& root, Action& action);             // pack.cpp
void add_index(CLI::App& root, Action& action);            // index.cpp
void add_verify(CLI::App& root, Action& action);           // verify.cpp
void add_census(CLI::App& root, Action& action);           // census.cpp
void add_make_checkpoint(CLI::App& root, Action& action);  // make_checkpoint.cpp
void add_conform(CLI::App& root, Action& action);          // conform.cpp
void add_compare_logits(CLI::App& root, Action& action);   // compare_logits.cpp
void add_sim_cache(CLI::App& root, Action& action);        // sim_cache.cpp

}  // namespace k3::cli
