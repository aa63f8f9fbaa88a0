#include "tools/k3/pipeline_link.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "tools/k3/pipeline_failure.h"

namespace k3::cli {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kTurn{100};  // upper bound of one turn of the loop
constexpr milliseconds kStatsPeriod{250};
constexpr milliseconds kFailurePeriod{500};
constexpr milliseconds kLastStatsLimit{2000};
constexpr std::chrono::seconds kWarnAfter{10};

}  // namespace

std::string_view name_of(Stage stage) {
  switch (stage) {
    case Stage::kTokenizer:
      return "tokenizer";
    case Stage::kTrunk:
      return "trunk";
    case Stage::kExperts:
      return "experts";
    case Stage::kCompute:
      return "compute";
  }
  return "";
}

PipelineLink::PipelineLink(Options options) : options_(std::move(options)) {}
PipelineLink::~PipelineLink() = default;

Result<std::unique_ptr<PipelineLink>> PipelineLink::create(Options options) {
  std::unique_ptr<PipelineLink> link(new PipelineLink(std::move(options)));
  for (const Stage stage : kStages) K3_TRY(link->connect(stage));
  if (link->options_.stop_fd >= 0) {
    link->loop_.watch(link->options_.stop_fd, [raw = link.get()] { raw->on_stop_signal(); });
  }
  link->loop_.every(kStatsPeriod, [raw = link.get()] { raw->poll_stats(); });
  link->loop_.every(kFailurePeriod, [raw = link.get()] { raw->look_for_failures(); });
  return link;
}

Status PipelineLink::connect(Stage stage) {
  // The tokenizer serves no weights and so has no fingerprint.
  const bool has_model = stage != Stage::kTokenizer;
  ipc::Client::Options options{.service = std::string(name_of(stage)),
                               .role = "cli",
                               .fingerprint = has_model ? options_.fingerprint : "",
                               .map_regions = false};
  ipc::Client::Callbacks callbacks;
  callbacks.on_up = [this, stage](const ipc::Welcome& welcome) {
    Line& self = line(stage);
    ++self.connections;
    self.warned = false;
    if (options_.on_up) options_.on_up(stage, welcome.pid);
  };
  callbacks.on_message = [this, stage](const ipc::Envelope& envelope) {
    receive_message(stage, envelope);
  };
  callbacks.on_down = [this, stage] { line(stage).missing_since = Clock::now(); };
  line(stage).missing_since = Clock::now();
  K3_ASSIGN(line(stage).client,
            ipc::Client::create(loop_, options_.run_dir, std::move(options), std::move(callbacks)));
  return {};
}

void PipelineLink::receive_message(Stage stage, const ipc::Envelope& envelope) {
  Line& self = line(stage);
  const auto* stats = std::get_if<ipc::Stats>(&envelope.body);
  if (stats) self.stats.record(envelope.header.incarnation, *stats);
  if (self.asked && envelope.header.in_reply_to == *self.asked) {
    self.asked.reset();
    self.answer = envelope.body;
  } else if (stage == Stage::kCompute && !stats) {
    inbox_.push_back({envelope, Clock::now()});
  }
}

void PipelineLink::on_stop_signal() {
  signalfd_siginfo signal;
  if (::read(options_.stop_fd, &signal, sizeof(signal)) != sizeof(signal)) return;
  stop_asked_ = true;
  // The next signal ends this process at once; a private pipeline follows its parent.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

void PipelineLink::poll_stats() {
  for (Line& each : lines_) {
    // A lost report is made up for by the next one.
    if (each.client->up()) (void)each.client->send(ipc::StatsRequest{});
  }
}

void PipelineLink::look_for_failures() {
  for (const Line& each : lines_) {
    if (!failure_ && each.client->failure()) failure_ = *each.client->failure();
  }
  if (!failure_) failure_ = pipeline_failure(options_.run_dir);
  warn_about_missing();
}

void PipelineLink::warn_about_missing() {
  for (const Stage stage : kStages) {
    Line& self = line(stage);
    if (self.client->up() || self.warned || Clock::now() - self.missing_since < kWarnAfter)
      continue;
    self.warned = true;
    spdlog::warn("waiting stage={} seconds={} run_dir=\"{}\"", name_of(stage), kWarnAfter.count(),
                 options_.run_dir.string());
  }
}

Status PipelineLink::wait(const std::function<bool()>& done) {
  while (!done()) {
    if (stop_asked_) return fail(ErrorCode::kStopped, "stopped by a signal");
    if (failure_) return tl::unexpected<Error>(*failure_);
    loop_.run_once(kTurn);
  }
  return {};
}

bool PipelineLink::wait_briefly(const std::function<bool()>& done, milliseconds limit) {
  const Clock::time_point end = Clock::now() + limit;
  while (!done() && Clock::now() < end) {
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    loop_.run_once(std::clamp(left, milliseconds{0}, kTurn));
  }
  return done();
}

Status PipelineLink::wait_until_up() {
  K3_TRY(wait([this] {
    return std::all_of(lines_.begin(), lines_.end(),
                       [](const Line& each) { return each.connections > 0; });
  }));
  const std::string& served = welcome(Stage::kCompute)->fingerprint;
  for (const Stage stage : {Stage::kTrunk, Stage::kExperts}) {
    const std::string& other = welcome(stage)->fingerprint;
    if (other == served) continue;
    return fail(ErrorCode::kIncompatible, "{} serves model {}, compute runs model {}",
                name_of(stage), other, served);
  }
  return {};
}

bool PipelineLink::up(Stage stage) const { return line(stage).client->up(); }

const std::optional<ipc::Welcome>& PipelineLink::welcome(Stage stage) const {
  return line(stage).client->welcome();
}

std::uint64_t PipelineLink::connections(Stage stage) const { return line(stage).connections; }

std::uint32_t PipelineLink::losses() const {
  std::uint32_t sum = 0;
  for (const Line& each : lines_) sum += each.client->losses();
  return sum;
}

Result<ipc::Message> PipelineLink::ask(Stage stage, const ipc::Message& question) {
  Line& self = line(stage);
  for (;;) {
    K3_TRY(wait([&self] { return self.client->up(); }));
    const std::uint64_t connection = self.connections;
    const Result<std::uint64_t> sent = self.client->send(question);
    if (!sent) {
      if (sent.error().code == ErrorCode::kUnavailable) continue;
      return tl::unexpected<Error>(sent.error());
    }
    self.asked = *sent;
    self.answer.reset();
    const Status waited = wait([&self, connection] {
      return self.answer.has_value() || !self.client->up() || self.connections != connection;
    });
    self.asked.reset();
    K3_TRY(waited);
    if (!self.answer) continue;
    if (auto* error = std::get_if<ipc::ErrorReply>(&*self.answer)) {
      return tl::unexpected<Error>(std::move(error->error));
    }
    return std::move(*self.answer);
  }
}

Result<ipc::Message> PipelineLink::ask_briefly(Stage stage, const ipc::Message& question,
                                               milliseconds limit) {
  Line& self = line(stage);
  const std::uint64_t connection = self.connections;
  const auto lost = [&] { return !self.client->up() || self.connections != connection; };
  K3_ASSIGN(self.asked, self.client->send(question));
  self.answer.reset();
  wait_briefly([&] { return self.answer.has_value() || lost(); }, limit);
  self.asked.reset();
  if (!self.answer && lost()) return fail(ErrorCode::kUnavailable, "went down");
  if (!self.answer) {
    return fail(ErrorCode::kUnavailable, "does not answer within {} ms", limit.count());
  }
  if (auto* error = std::get_if<ipc::ErrorReply>(&*self.answer)) {
    return tl::unexpected<Error>(std::move(error->error));
  }
  return std::move(*self.answer);
}

Result<std::uint64_t> PipelineLink::send(Stage stage, const ipc::Message& message) {
  return line(stage).client->send(message);
}

PipelineLink::Received PipelineLink::receive() {
  Received received = std::move(inbox_.front());
  inbox_.pop_front();
  return received;
}

void PipelineLink::refresh_stats() {
  for (const Stage stage : kStages) {
    // A stage that dies right now counts up to its last report.
    if (up(stage)) (void)ask_briefly(stage, ipc::StatsRequest{}, kLastStatsLimit);
  }
}

}  // namespace k3::cli
