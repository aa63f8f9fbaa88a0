// A user's connections to the four services of one pipeline, over their restarts.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/ipc/client.h"
#include "common/ipc/event_loop.h"
#include "common/ipc/messages.h"
#include "tools/k3/pipeline_stats.h"

namespace k3::cli {

enum class Stage : std::size_t { kTokenizer, kTrunk, kExperts, kCompute };
inline constexpr std::array kStages = {Stage::kTokenizer, Stage::kTrunk, Stage::kExperts,
                                       Stage::kCompute};

// "tokenizer", "trunk", "experts", "compute".
std::string_view name_of(Stage stage);

// One thread: everything happens inside the waiting calls. Neither a slow nor a missing stage is
// ever given up on by time; only the system (end of file), the supervisor (see pipeline_failure)
// and the user decide. After 10 s without a stage one warning is logged.
class PipelineLink {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    std::filesystem::path run_dir;
    int stop_fd = -1;              // a stop_signal_fd(); -1 for none
    std::string fingerprint = {};  // of the model expected; empty accepts the pipeline's
    // Called when a stage is connected, again after each of its restarts.
    std::function<void(Stage, std::uint32_t pid)> on_up = {};
  };

  struct Received {
    ipc::Envelope envelope;
    Clock::time_point at;
  };

  // Begins to connect; wait_until_up() completes it.
  static Result<std::unique_ptr<PipelineLink>> create(Options options);
  ~PipelineLink();

  // Runs until `done`. kStopped after a stop signal (from then on every wait fails at once and a
  // second signal ends the process), else the error of a stage that cannot come back.
  Status wait(const std::function<bool()>& done);

  // Runs until `done` or until `limit` has passed, whatever else happens; returns done().
  bool wait_briefly(const std::function<bool()>& done, std::chrono::milliseconds limit);

  // Waits until all stages are connected. kIncompatible when trunk, experts and compute do not
  // serve the same model, naming the fingerprints.
  Status wait_until_up();

  bool up(Stage stage) const;
  // The stage's latest process; empty when it was never connected.
  const std::optional<ipc::Welcome>& welcome(Stage stage) const;
  // Counts the connections of a stage: a change means that nothing sent earlier counts.
  std::uint64_t connections(Stage stage) const;
  // Times any stage was lost after having been connected.
  std::uint32_t losses() const;

  // Sends `question` and waits for its answer, asking again after a restart. An ErrorReply becomes
  // the error. Other errors as wait().
  Result<ipc::Message> ask(Stage stage, const ipc::Message& question);
  // The same for a stage that is up, without asking again; kUnavailable when it goes down or
  // `limit` passes, in words that follow the stage's name, which the caller says.
  Result<ipc::Message> ask_briefly(Stage stage, const ipc::Message& question,
                                   std::chrono::milliseconds limit);

  // Sends without waiting for an answer; what comes back is for receive().
  Result<std::uint64_t> send(Stage stage, const ipc::Message& message);
  bool has_received() const { return !inbox_.empty(); }
  // The next message of the compute worker that answers no ask(); has_received() must be true.
  Received receive();

  // Counters of a stage, polled four times a second while connected.
  StatsLedger& stats(Stage stage) { return lines_[static_cast<std::size_t>(stage)].stats; }
  // Fetches the counters of all connected stages once more.
  void refresh_stats();

 private:
  struct Line {
    std::unique_ptr<ipc::Client> client;
    std::uint64_t connections = 0;
    StatsLedger stats;
    std::optional<std::uint64_t> asked;  // sequence of the open question
    std::optional<ipc::Message> answer;
    Clock::time_point missing_since;
    bool warned = false;
  };

  explicit PipelineLink(Options options);
  Status connect(Stage stage);
  void receive_message(Stage stage, const ipc::Envelope& envelope);
  void on_stop_signal();
  void poll_stats();
  void look_for_failures();
  void warn_about_missing();
  Line& line(Stage stage) { return lines_[static_cast<std::size_t>(stage)]; }
  const Line& line(Stage stage) const { return lines_[static_cast<std::size_t>(stage)]; }

  Options options_;
  ipc::EventLoop loop_;
  std::array<Line, kStages.size()> lines_;
  std::deque<Received> inbox_;
  bool stop_asked_ = false;
  std::optional<Error> failure_;
};

}  // namespace k3::cli
