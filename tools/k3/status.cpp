// k3 status: which services of a pipeline are up, and what they report.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>

#include "common/ipc/run_dir.h"
#include "common/observe/memory.h"
#include "tools/k3/commands.h"
#include "tools/k3/pipeline_failure.h"
#include "tools/k3/pipeline_link.h"
#include "tools/k3/report.h"

namespace k3::cli {
namespace {

using Json = nlohmann::ordered_json;

// A report, not a verdict: a busy service answers between two layers, so "down" may be "busy".
constexpr std::chrono::milliseconds kConnectLimit{3000};
constexpr std::chrono::milliseconds kAnswerLimit{3000};

// One line on what the service is, from the answer to its Describe message.
struct DescriptionLine {
  std::string operator()(const ipc::TokenizerDescription& it) const {
    if (!it.has_vocabulary) return "no vocabulary";
    return fmt::format("vocabulary of {} ids", it.vocab);
  }
  std::string operator()(const ipc::TrunkDescription& it) const {
    return fmt::format("{} layers, {} units of {} in all, {} slots of {} in all", it.layers,
                       it.units, human_bytes(it.pass_bytes), it.slots, human_bytes(it.arena_bytes));
  }
  std::string operator()(const ipc::ExpertsDescription& it) const {
    return fmt::format("{} experts a layer of {} bytes, {} slots of {} in all", it.experts,
                       it.expert_bytes, it.slots, human_bytes(it.arena_bytes));
  }
  std::string operator()(const ipc::ComputeDescription& it) const {
    return fmt::format("{} of {} layers, {} kernels, {} threads, at most {}", it.layers,
                       it.model_layers, it.isa, it.threads, human_bytes(it.planned_bytes));
  }
  template <class Other>
  std::string operator()(const Other&) const {
    return "";
  }
};

ipc::Message describe_question(Stage stage) {
  switch (stage) {
    case Stage::kTokenizer:
      return ipc::DescribeTokenizer{};
    case Stage::kTrunk:
      return ipc::DescribeTrunk{};
    case Stage::kExperts:
      return ipc::DescribeExperts{};
    case Stage::kCompute:
      return ipc::DescribeCompute{};
  }
  return ipc::StatsRequest{};
}

Json describe(PipelineLink& link, Stage stage) {
  Json json = {{"service", name_of(stage)}, {"up", link.up(stage)}};
  if (!link.up(stage)) return json;
  const ipc::Welcome& welcome = *link.welcome(stage);
  json["pid"] = welcome.pid;
  json["fingerprint"] = welcome.fingerprint;
  const auto pss = proportional_set_bytes(welcome.pid);
  json["memory_bytes"] = pss ? Json(*pss) : Json(nullptr);
  if (const auto answer = link.ask_briefly(stage, describe_question(stage), kAnswerLimit)) {
    json["description"] = std::visit(DescriptionLine{}, *answer);
  }
  if (const auto answer = link.ask_briefly(stage, ipc::StatsRequest{}, kAnswerLimit)) {
    if (const auto* stats = std::get_if<ipc::Stats>(&*answer)) {
      for (const ipc::Counter& counter : stats->counters) {
        json["counters"][counter.name] = counter.value;
      }
    }
  }
  return json;
}

void print(const Json& service) {
  fmt::print("{:<10} {}", service["service"].get<std::string>(),
             service["up"].get<bool>() ? "up" : "down");
  if (!service["up"].get<bool>()) {
    fmt::print("\n");
    return;
  }
  fmt::print("  pid {}", service["pid"].get<std::uint32_t>());
  if (service["memory_bytes"].is_number()) {
    fmt::print("  {}", human_bytes(service["memory_bytes"].get<std::uint64_t>()));
  }
  const std::string fingerprint = service["fingerprint"];
  if (!fingerprint.empty()) fmt::print("  model {}", fingerprint);
  fmt::print("\n           {}\n", service.value("description", "does not answer"));
  if (!service.contains("counters")) return;
  fmt::print("          ");
  for (const auto& [name, value] : service["counters"].items()) {
    fmt::print(" {}={}", name, value.get<std::uint64_t>());
  }
  fmt::print("\n");
}

// Whether every service that may be there is connected: one without a socket file is down.
bool settled(const PipelineLink& link, const std::filesystem::path& run_dir) {
  for (const Stage stage : kStages) {
    const auto endpoint = ipc::endpoint_in(run_dir, name_of(stage));
    std::error_code ignored;
    const bool present = endpoint && std::filesystem::exists(endpoint->lifeline_path, ignored);
    if (present && !link.up(stage)) return false;
  }
  return true;
}

Status status(const std::filesystem::path& run_dir, bool as_json) {
  K3_TRY(check_pipeline(run_dir));
  K3_ASSIGN(const std::unique_ptr<PipelineLink> link, PipelineLink::create({.run_dir = run_dir}));
  link->wait_briefly([&] { return settled(*link, run_dir); }, kConnectLimit);
  Json services = Json::array();
  std::string down;
  for (const Stage stage : kStages) {
    services.push_back(describe(*link, stage));
    if (link->up(stage)) continue;
    down += fmt::format("{}{}", down.empty() ? "" : ", ", name_of(stage));
  }
  const std::optional<Error> failure = pipeline_failure(run_dir);
  if (as_json) {
    const Json report = {{"run_dir", run_dir.string()},
                         {"failure", failure ? Json(failure->message) : Json(nullptr)},
                         {"services", services}};
    fmt::print("{}\n", report.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    for (const Json& service : services) print(service);
    if (failure) fmt::print("{}\n", failure->message);
  }
  if (down.empty()) return {};
  return fail(ErrorCode::kFailed, "not up in {}: {}", run_dir.string(), down);
}

}  // namespace

void add_status(CLI::App& root, Action& action) {
  struct Flags {
    std::filesystem::path run_dir;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command = root.add_subcommand("status", "show the services of a running pipeline");
  command->add_option("--pipeline", flags->run_dir, "run directory of the pipeline")->required();
  command->add_flag("--json", flags->json, "print JSON");
  command->callback(
      [flags, &action] { action = [flags] { return status(flags->run_dir, flags->json); }; });
}

}  // namespace k3::cli
