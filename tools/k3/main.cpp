// k3: the user's command line. Each subcommand is a file beside this one.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "common/base/log.h"
#include "tools/k3/commands.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app("Runs Kimi K3 on one CPU host by streaming its weights from disk.", "k3");
  app.require_subcommand(1);
  k3::cli::Action action;
  k3::cli::add_run(app, action);
  k3::cli::add_pack(app, action);
  k3::cli::add_index(app, action);
  k3::cli::add_verify(app, action);
  k3::cli::add_census(app, action);
  k3::cli::add_make_checkpoint(app, action);
  k3::cli::add_compare_logits(app, action);
  k3::cli::add_status(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : k3::exit_code(k3::ErrorCode::kUsage);
  }
  const k3::Status status = action();
  if (status) return 0;
  fmt::print(stderr, "k3: {}\n", status.error().message);
  return k3::exit_code(status.error().code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (const k3::Status logging = k3::start_logging("k3", "warn"); !logging) return 70;
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "k3: bug: {}\n", error.what());
    return k3::exit_code(k3::ErrorCode::kBug);
  }
}
