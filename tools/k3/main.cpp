// k3: the user's command line. Each subcommand is a file beside this one.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "common/base/log.h"
#include "tools/k3/commands.h"
#include "tools/k3/terminal.h"

namespace {

using k3::cli::tell;

int report(const k3::Status& status) {
  if (status) return 0;
  tell(fmt::format("k3: {}\n", status.error().message));
  return k3::exit_code(status.error().code);
}

int run(int argc, char** argv) {
  CLI::App app("Runs Kimi K3 on one CPU host by streaming its weights from disk.", "k3");
  app.require_subcommand(1);
  k3::cli::Action action;
  k3::cli::add_run(app, action);
  k3::cli::add_plan(app, action);
  k3::cli::add_pack(app, action);
  k3::cli::add_index(app, action);
  k3::cli::add_verify(app, action);
  k3::cli::add_census(app, action);
  k3::cli::add_make_checkpoint(app, action);
  k3::cli::add_compare_logits(app, action);
  k3::cli::add_sim_cache(app, action);
  k3::cli::add_conform(app, action);
  k3::cli::add_status(app, action);
  k3::cli::add_control(app, action);
  k3::cli::add_trace(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) != 0) return k3::exit_code(k3::ErrorCode::kUsage);
    return report(k3::cli::flush_stdout());
  }
  k3::Status status = action();
  if (status) status = k3::cli::flush_stdout();
  return report(status);
}

}  // namespace

int main(int argc, char** argv) {
  k3::cli::claim_terminal();
  try {
    if (const k3::Status logging = k3::start_logging("k3", "warn"); !logging) return 70;
    return run(argc, argv);
  } catch (const std::exception& error) {
    // fmt::print throws when stdout takes no more.
    if (std::ferror(stdout) != 0) return report(k3::cli::flush_stdout());
    tell(fmt::format("k3: bug: {}\n", error.what()));
    return k3::exit_code(k3::ErrorCode::kBug);
  }
}
