// The spans of a running pipeline's services, switched on and taken while they work.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/ipc/client.h"
#include "common/ipc/event_loop.h"
#include "common/ipc/messages.h"
#include "tools/k3/pipeline_link.h"

namespace k3::cli {

// What one process did.
struct ProcessSpans {
  std::string process;  // "k3-trunk"
  std::uint32_t pid = 0;
  std::vector<std::string> names;
  std::vector<ipc::RecordedSpan> spans;  // their names are indices in `names`
  std::uint64_t dropped = 0;             // of the process's own ring, or of ours
};

// Connects to the four services, switches spans on, and takes them ten times a second. A service
// that is started again is switched on again and counts as another process. All calls on the
// loop's thread.
class SpanCollector {
 public:
  // Spans held of all processes together; later ones are dropped and counted.
  static constexpr std::size_t kMostSpans = 2'000'000;

  // `loop` outlives this. Returns before any service is connected.
  static Result<std::unique_ptr<SpanCollector>> create(ipc::EventLoop& loop,
                                                       const std::filesystem::path& run_dir);

  // Every service has answered that it records, or that it does not know how (which is logged).
  bool started() const;

  // Takes what is left, waits at most a few seconds for it, and switches spans off. The spans so
  // far, of processes in the order they were met.
  std::vector<ProcessSpans> finish();

  ~SpanCollector();

 private:
  struct Line {
    std::unique_ptr<ipc::Client> client;
    std::optional<std::size_t> process;  // index in processes_, of the service now connected
    std::uint64_t asked = 0;             // sequence of the latest question; 0: answered
    bool started = false;                // it has answered whether it records
  };

  explicit SpanCollector(ipc::EventLoop& loop) : loop_(loop) {}
  Status connect(ipc::EventLoop& loop, const std::filesystem::path& run_dir, Stage stage);
  void on_up(Stage stage, const ipc::Welcome& welcome);
  void on_message(Stage stage, const ipc::Envelope& envelope);
  void add(ProcessSpans& process, const ipc::Spans& taken);
  void ask(const ipc::Message& question);
  Line& line(Stage stage) { return lines_[static_cast<std::size_t>(stage)]; }

  ipc::EventLoop& loop_;
  ipc::EventLoop::SourceId timer_ = 0;
  std::array<Line, kStages.size()> lines_;
  std::vector<ProcessSpans> processes_;
  std::size_t held_ = 0;
};

}  // namespace k3::cli
