// k3-bench: how close the product is to what the machine can do. Each subcommand is a file beside
// this one.
#include <cstdio>
#include <exception>

#include "common/base/log.h"
#include "tools/bench/commands.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app(
      "Measures the kernels against the machine's limits, and the pipeline in seconds a token.",
      "k3-bench");
  app.require_subcommand(1);
  k3::bench::Action action;
  k3::bench::add_kernels(app, action);
  k3::bench::add_e2e(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : k3::exit_code(k3::ErrorCode::kUsage);
  }
  const k3::Status status = action();
  if (status) return 0;
  std::fprintf(stderr, "k3-bench: %s\n", status.error().message.c_str());
  return k3::exit_code(status.error().code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (const k3::Status logging = k3::start_logging("k3-bench", "warn"); !logging) return 70;
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "k3-bench: bug: %s\n", error.what());
    return k3::exit_code(k3::ErrorCode::kBug);
  }
}
