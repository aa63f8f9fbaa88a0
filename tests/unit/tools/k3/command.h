// Runs one subcommand of k3 inside the test's process.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "tools/k3/commands.h"

namespace k3::test {

// Parses `arguments` with the subcommand that `add` registers and runs it. A flag that cannot be
// parsed throws CLI::ParseError.
inline Status run_command(void (*add)(CLI::App&, cli::Action&),
                          std::vector<std::string> arguments) {
  CLI::App root;
  cli::Action action;
  add(root, action);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes a vector from its back
  root.parse(arguments);
  return action();
}

}  // namespace k3::test
