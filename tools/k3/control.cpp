// k3 control: tells the services of a running pipeline what to do.
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/k3/commands.h"
#include "tools/k3/pipeline_failure.h"
#include "tools/k3/pipeline_link.h"
#include "tools/k3/terminal.h"

namespace k3::cli {
namespace {

// A busy compute worker answers, and stops, between two layers.
constexpr std::chrono::milliseconds kConnectLimit{3000};
constexpr std::chrono::milliseconds kAnswerLimit{10'000};

struct ControlOptions {
  std::filesystem::path run_dir;
  std::string stage;  // empty: all
  std::string level;
};

// What one stage is told; returns its answer in words.
using Order = std::function<Result<std::string>(PipelineLink&, Stage)>;

Result<std::string> set_log_level(PipelineLink& link, Stage stage, const std::string& level) {
  K3_TRY(link.ask_briefly(stage, ipc::SetLogLevel{level}, kAnswerLimit));
  return fmt::format("log level {}", level);
}

Result<std::string> stop(PipelineLink& link, Stage stage) {
  const std::uint64_t connection = link.connections(stage);
  K3_TRY(link.send(stage, ipc::Stop{}));
  // The supervisor may have started its successor already.
  const auto gone = [&] { return !link.up(stage) || link.connections(stage) != connection; };
  if (link.wait_briefly(gone, kAnswerLimit)) return std::string("stopped");
  return fail(ErrorCode::kUnavailable, "does not stop within {} ms", kAnswerLimit.count());
}

std::vector<Stage> chosen_stages(const std::string& name) {
  std::vector<Stage> stages;
  for (const Stage stage : kStages) {
    if (name.empty() || name == name_of(stage)) stages.push_back(stage);
  }
  return stages;
}

Status control(const ControlOptions& options, const Order& order) {
  K3_TRY(check_pipeline(options.run_dir));
  K3_ASSIGN(const std::unique_ptr<PipelineLink> link,
            PipelineLink::create({.run_dir = options.run_dir}));
  std::optional<Error> first;
  for (const Stage stage : chosen_stages(options.stage)) {
    Result<std::string> answer = fail(ErrorCode::kUnavailable, "is down");
    if (link->wait_briefly([&] { return link->up(stage); }, kConnectLimit)) {
      answer = order(*link, stage);
    }
    const std::string line = answer ? *answer : answer.error().message;
    K3_TRY(print_now(fmt::format("{:<10} {}\n", name_of(stage), line)));
    if (!answer && !first) {
      first = Error{answer.error().code, fmt::format("{}: {}", name_of(stage), line)};
    }
  }
  if (first) return tl::unexpected<Error>(*first);
  return {};
}

}  // namespace

void add_control(CLI::App& root, Action& action) {
  const auto options = std::make_shared<ControlOptions>();
  CLI::App* const command =
      root.add_subcommand("control", "tell the services of a running pipeline what to do");
  command->require_subcommand(1);
  command->add_option("--pipeline", options->run_dir, "run directory of the pipeline")->required();
  command->add_option("--stage", options->stage, "only this one (default: all)")
      ->check(CLI::IsMember({"tokenizer", "trunk", "experts", "compute"}));

  CLI::App* const level = command->add_subcommand(
      "log-level", "how much the service logs from now on, until it restarts");
  level->add_option("LEVEL", options->level, "trace, debug, info, warn or error")
      ->required()
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}));
  level->callback([options, &action] {
    action = [options] {
      return control(*options, [options](PipelineLink& link, Stage stage) {
        return set_log_level(link, stage, options->level);
      });
    };
  });

  CLI::App* const end = command->add_subcommand(
      "stop", "ends the service in order; its supervisor decides whether it starts again");
  end->callback([options, &action] { action = [options] { return control(*options, stop); }; });
}

}  // namespace k3::cli
