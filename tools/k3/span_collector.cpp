#include "tools/k3/span_collector.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

namespace k3::cli {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kPeriod{100};
// A busy compute worker answers between two layers.
constexpr milliseconds kLastLimit{5000};

std::uint16_t index_of(std::vector<std::string>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  const auto index = static_cast<std::uint16_t>(found - names.begin());
  if (found == names.end()) names.push_back(name);
  return index;
}

}  // namespace

Result<std::unique_ptr<SpanCollector>> SpanCollector::create(ipc::EventLoop& loop,
                                                             const std::filesystem::path& run_dir) {
  std::unique_ptr<SpanCollector> collector(new SpanCollector(loop));
  for (const Stage stage : kStages) K3_TRY(collector->connect(loop, run_dir, stage));
  collector->timer_ =
      loop.every(kPeriod, [self = collector.get()] { self->ask(ipc::TakeSpans{}); });
  return collector;
}

SpanCollector::~SpanCollector() { loop_.remove(timer_); }

Status SpanCollector::connect(ipc::EventLoop& loop, const std::filesystem::path& run_dir,
                              Stage stage) {
  K3_ASSIGN(line(stage).client,
            ipc::Client::create(
                loop, run_dir,
                {.service = std::string(name_of(stage)),
                 .role = "trace",
                 .fingerprint = "",
                 .map_regions = false},
                {.on_up = [this, stage](const ipc::Welcome& welcome) { on_up(stage, welcome); },
                 .on_message = [this, stage](const ipc::Envelope& it) { on_message(stage, it); },
                 .on_down = [this, stage] { line(stage).process.reset(); }}));
  return {};
}

void SpanCollector::on_up(Stage stage, const ipc::Welcome& welcome) {
  line(stage).process = processes_.size();
  processes_.push_back({.process = welcome.service, .pid = welcome.pid, .names = {}, .spans = {}});
  (void)line(stage).client->send(ipc::SetSpans{true});  // lost with the service: asked again then
}

void SpanCollector::on_message(Stage stage, const ipc::Envelope& envelope) {
  Line& self = line(stage);
  if (envelope.header.in_reply_to == self.asked) self.asked = 0;
  if (const auto* taken = std::get_if<ipc::Spans>(&envelope.body)) {
    if (self.process) add(processes_[*self.process], *taken);
    return;
  }
  const auto* error = std::get_if<ipc::ErrorReply>(&envelope.body);
  if (error != nullptr && !self.started) {
    spdlog::warn("no_spans stage={} error=\"{}\"", name_of(stage), error->error.message);
  }
  self.started = true;
}

void SpanCollector::add(ProcessSpans& process, const ipc::Spans& taken) {
  std::vector<std::uint16_t> indices;
  for (const std::string& name : taken.names) {
    indices.push_back(index_of(process.names, name));
  }
  const std::size_t count = std::min(taken.spans.size(), kMostSpans - held_);
  for (std::size_t i = 0; i < count; ++i) {
    process.spans.push_back(taken.spans[i]);
    process.spans.back().name = indices[taken.spans[i].name];
  }
  held_ += count;
  process.dropped += taken.dropped + (taken.spans.size() - count);
}

void SpanCollector::ask(const ipc::Message& question) {
  for (Line& each : lines_) {
    each.asked = each.client->send(question).value_or(0);
  }
}

bool SpanCollector::started() const {
  return std::all_of(lines_.begin(), lines_.end(), [](const Line& each) { return each.started; });
}

std::vector<ProcessSpans> SpanCollector::finish() {
  loop_.remove(std::exchange(timer_, 0));
  ask(ipc::SetSpans{false});
  ask(ipc::TakeSpans{});
  const auto end = ipc::EventLoop::Clock::now() + kLastLimit;
  const auto waiting = [](const Line& each) { return each.client->up() && each.asked != 0; };
  while (std::any_of(lines_.begin(), lines_.end(), waiting) && ipc::EventLoop::Clock::now() < end) {
    loop_.run_once(milliseconds{50});
  }
  return std::move(processes_);
}

}  // namespace k3::cli
