// k3 conform: checks any experts service against the clauses of docs/expert-service.md.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "tools/k3/commands.h"
#include "tools/k3/conform_scenarios.h"
#include "tools/k3/output_file.h"

namespace k3::cli {
namespace {

// What one scenario may ask for without --full.
constexpr std::uint64_t kBudgetBytes = 4'000'000'000;

struct ConformOptions {
  std::filesystem::path endpoint;
  std::filesystem::path model;
  std::optional<int> layers;
  std::optional<std::string> restart_command;
  std::optional<std::filesystem::path> json;
  std::uint64_t fetches = 100'000;
  double limit_seconds = 60;
  bool full = false;
};

struct Scenario {
  std::vector<Clause> clauses;  // it is in charge of
  ScenarioFunction run;
};

// In the order in which they run: death and restart come last, since they leave a service that is
// not sound in the worst state.
const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = {
      {{Clause::kFiles, Clause::kRegions, Clause::kWelcome}, check_files},
      {{Clause::kConnectionId}, check_connection_ids},
      {{Clause::kGreeting}, check_greeting},
      {{Clause::kFingerprint}, check_fingerprint},
      {{Clause::kVersion}, check_version},
      {{Clause::kSequence}, check_sequence},
      {{Clause::kMalformed}, check_malformed_frames},
      {{Clause::kUnserved}, check_unserved_messages},
      {{Clause::kDescription}, check_description},
      {{Clause::kBytes, Clause::kReferences, Clause::kGeneration, Clause::kComplete, Clause::kOnce,
        Clause::kBatch},
       check_every_expert},
      {{Clause::kUnknownLayer, Clause::kUnknownExpert, Clause::kTooMany}, check_refusals},
      {{Clause::kOpenBatches}, check_open_batches},
      {{Clause::kHints, Clause::kUrgency}, check_hints_and_urgency},
      {{Clause::kLeases}, check_leases},
      {{Clause::kWaiting}, check_waiting},
      {{Clause::kRelease}, check_release},
      {{Clause::kClients}, check_two_clients},
      {{Clause::kEndurance, Clause::kStatistics}, check_endurance},
      {{Clause::kDeath}, check_death},
      {{Clause::kRestart}, check_restart}};
  return all;
}

// RUN, where the service is called "experts", or RUN/NAME.
Result<ipc::Endpoint> endpoint_of(const std::filesystem::path& given) {
  std::error_code ignored;
  if (std::filesystem::is_directory(given, ignored)) return ipc::endpoint_in(given, "experts");
  return ipc::endpoint_in(std::filesystem::absolute(given).parent_path(),
                          given.filename().string());
}

std::string word_for(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPassed:
      return "passed";
    case Outcome::kFailed:
      return "FAILED";
    case Outcome::kSkipped:
      return "skipped";
  }
  return {};
}

std::size_t count(const std::vector<Verdict>& verdicts, Outcome outcome) {
  return static_cast<std::size_t>(
      std::ranges::count(verdicts, outcome, [](const Verdict& it) { return it.outcome; }));
}

void print_verdicts(const std::vector<Verdict>& verdicts) {
  for (const Verdict& it : verdicts) {
    fmt::print("{:<4} {:<18} {}{}{}\n", id_of(it.clause), name_of(it.clause), word_for(it.outcome),
               it.detail.empty() ? "" : ": ", it.detail);
  }
  fmt::print("{} passed, {} failed, {} skipped\n", count(verdicts, Outcome::kPassed),
             count(verdicts, Outcome::kFailed), count(verdicts, Outcome::kSkipped));
}

std::string verdicts_json(const ConformOptions& options, const std::string& fingerprint,
                          const std::vector<Verdict>& verdicts) {
  using Json = nlohmann::ordered_json;
  Json clauses = Json::array();
  for (const Verdict& it : verdicts) {
    clauses.push_back({{"id", id_of(it.clause)},
                       {"name", name_of(it.clause)},
                       {"outcome", word_for(it.outcome)},
                       {"detail", it.detail}});
  }
  const Json json = {{"endpoint", options.endpoint.string()},
                     {"model", options.model.string()},
                     {"fingerprint", fingerprint},
                     {"fetches", options.fetches},
                     {"passed", count(verdicts, Outcome::kPassed)},
                     {"failed", count(verdicts, Outcome::kFailed)},
                     {"skipped", count(verdicts, Outcome::kSkipped)},
                     {"clauses", clauses}};
  // Paths need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Connects once before anything is judged: a service that takes no client cannot be checked.
Result<std::uint32_t> slots_of(const ConformSetup& setup) {
  K3_ASSIGN(const auto client, ConformClient::connect(setup));
  K3_ASSIGN(const ipc::ExpertsDescription description, client->describe());
  if (description.slots > 0) return description.slots;
  return fail(ErrorCode::kFailed, "{}: the service has no slots",
              setup.endpoint.lifeline_path.string());
}

Status run_conform(const ConformOptions& options) {
  if (options.json) K3_TRY(check_output(*options.json, "--json", Output::kReplaced));
  K3_ASSIGN(const ipc::Endpoint endpoint, endpoint_of(options.endpoint));
  K3_ASSIGN(Checkpoint checkpoint, Checkpoint::open(options.model, {.layers = options.layers}));
  K3_ASSIGN(ExpertTruth truth, ExpertTruth::open(std::move(checkpoint)));
  if (truth.layers() <= truth.first_layer()) {
    return fail(ErrorCode::kUsage, "{}: no layer in use has routed experts",
                options.model.string());
  }
  Findings findings;
  const std::chrono::duration<double> limit(options.limit_seconds);
  const ConformSetup setup{endpoint, truth, findings,
                           std::chrono::ceil<std::chrono::milliseconds>(limit)};
  K3_ASSIGN(const std::uint32_t slots, slots_of(setup));
  const ConformScale scale{slots,
                           options.full ? std::numeric_limits<std::uint64_t>::max() : kBudgetBytes,
                           options.fetches, options.restart_command};
  for (const Scenario& scenario : scenarios()) {
    const Status status = scenario.run(setup, scale);
    if (!status) findings.cut_short(scenario.clauses, status.error().message);
  }
  const std::vector<Verdict> verdicts = findings.verdicts();
  print_verdicts(verdicts);
  if (options.json) {
    K3_TRY(write_output(*options.json,
                        verdicts_json(options, truth.checkpoint().fingerprint(), verdicts)));
  }
  const std::size_t failed = count(verdicts, Outcome::kFailed);
  if (failed == 0) return {};
  return fail(ErrorCode::kFailed, "{}: {} of {} clauses failed", options.endpoint.string(), failed,
              verdicts.size());
}

}  // namespace

void add_conform(CLI::App& root, Action& action) {
  CLI::App* const command = root.add_subcommand(
      "conform",
      "Checks a running experts service against docs/expert-service.md; exit 1 when a "
      "clause fails. Nobody else may use the service meanwhile.");
  const auto options = std::make_shared<ConformOptions>();
  command
      ->add_option("ENDPOINT", options->endpoint,
                   "run directory of the service, or RUN/NAME when it is not called experts")
      ->required();
  command->add_option("--model", options->model, "checkpoint directory it serves")->required();
  command->add_option("--layers", options->layers, "only the first N layers of a partial download")
      ->check(CLI::PositiveNumber);
  command->add_option("--fetches", options->fetches, "random fetches of the endurance run")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  command->add_flag("--full", options->full,
                    "every expert and every slot, however large the model is (default: scenarios "
                    "keep to 4 GB each)");
  command->add_option("--restart-command", options->restart_command,
                      "for sh: kills the service and brings it back on the same endpoint");
  command->add_option("--limit-seconds", options->limit_seconds, "how long one answer may take")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_option("--json", options->json, "file for the verdicts");
  command->callback([options, &action] { action = [options] { return run_conform(*options); }; });
}

}  // namespace k3::cli
