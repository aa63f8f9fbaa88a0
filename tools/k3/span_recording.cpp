#include "tools/k3/span_recording.h"

#include <chrono>
#include <future>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "common/ipc/event_loop.h"
#include "tools/k3/chrome_trace.h"
#include "tools/k3/output_file.h"
#include "tools/k3/span_collector.h"

namespace k3::cli {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kTurn{50};
constexpr std::chrono::seconds kStartLimit{10};

}  // namespace

struct SpanRecording::State {
  std::promise<Status> started;
  std::vector<ProcessSpans> spans;
  std::jthread thread;

  void work(const std::stop_token& stop, const std::filesystem::path& run_dir) {
    ipc::EventLoop loop;
    auto collector = SpanCollector::create(loop, run_dir);
    if (!collector) {
      return started.set_value(tl::unexpected<Error>(std::move(collector.error())));
    }
    const auto end = ipc::EventLoop::Clock::now() + kStartLimit;
    while (!(*collector)->started() && ipc::EventLoop::Clock::now() < end) loop.run_once(kTurn);
    started.set_value({});
    while (!stop.stop_requested()) loop.run_once(kTurn);
    spans = (*collector)->finish();
  }
};

SpanRecording::SpanRecording(std::unique_ptr<State> state) : state_(std::move(state)) {}
SpanRecording::~SpanRecording() = default;

Result<std::unique_ptr<SpanRecording>> SpanRecording::start(const std::filesystem::path& run_dir) {
  auto state = std::make_unique<State>();
  State* const raw = state.get();
  raw->thread =
      std::jthread([raw, run_dir](const std::stop_token& stop) { raw->work(stop, run_dir); });
  K3_TRY(raw->started.get_future().get());
  return std::unique_ptr<SpanRecording>(new SpanRecording(std::move(state)));
}

Status SpanRecording::write(const std::filesystem::path& path) {
  state_->thread.request_stop();
  state_->thread.join();
  return write_output(path, chrome_trace(state_->spans));
}

}  // namespace k3::cli
