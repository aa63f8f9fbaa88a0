#include "tools/k3/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace k3::cli {
namespace {

// Above every number the kernel gives a thread.
constexpr std::uint32_t kFirstLane = 1'000'000'000;

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Nanoseconds as microseconds, exactly.
std::string microseconds(std::uint64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

class Writer {
 public:
  explicit Writer(std::uint64_t origin_ns) : origin_ns_(origin_ns) {}

  void add(const ProcessSpans& process) {
    name("process_name", process.pid, process.pid, process.process);
    std::set<std::uint32_t> threads;
    std::vector<ipc::RecordedSpan> loose;
    for (const ipc::RecordedSpan& span : process.spans) {
      if (span.thread == 0) {
        loose.push_back(span);
        continue;
      }
      threads.insert(span.thread);
      event(process, span, span.thread);
    }
    for (const std::uint32_t thread : threads) {
      name("thread_name", process.pid, thread, thread == process.pid ? "event loop" : "reader");
    }
    add_loose(process, std::move(loose));
    dropped_ += process.dropped;
  }

  std::string finish() && {
    out_ += fmt::format("\n],\"displayTimeUnit\":\"ms\",\"otherData\":{{\"dropped\":{}}}}}\n",
                        dropped_);
    return std::move(out_);
  }

 private:
  // Each goes to the first lane that is free when it begins.
  void add_loose(const ProcessSpans& process, std::vector<ipc::RecordedSpan> spans) {
    std::ranges::sort(spans, {}, &ipc::RecordedSpan::begin_ns);
    std::vector<std::uint64_t> free_from;
    for (const ipc::RecordedSpan& span : spans) {
      const auto lane =
          std::ranges::find_if(free_from, [&](std::uint64_t end) { return end <= span.begin_ns; });
      const auto number = kFirstLane + static_cast<std::uint32_t>(lane - free_from.begin());
      if (lane == free_from.end()) {
        free_from.push_back(span.end_ns);
        name("thread_name", process.pid, number, fmt::format("waiting {}", free_from.size()));
      } else {
        *lane = span.end_ns;
      }
      event(process, span, number);
    }
  }

  void event(const ProcessSpans& process, const ipc::RecordedSpan& span, std::uint32_t thread) {
    separate();
    fmt::format_to(std::back_inserter(out_),
                   R"({{"ph":"X","name":{},"cat":"k3","pid":{},"tid":{},"ts":{},"dur":{},)"
                   R"("args":{{"token":{},"n":{}}}}})",
                   quoted(process.names.at(span.name)), process.pid, thread,
                   microseconds(span.begin_ns - origin_ns_),
                   microseconds(span.end_ns - std::min(span.begin_ns, span.end_ns)), span.trace_id,
                   span.argument);
  }

  void name(const char* what, std::uint32_t pid, std::uint32_t thread, const std::string& name) {
    separate();
    out_ += fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what,
                        pid, thread, quoted(name));
  }

  void separate() { out_ += std::exchange(first_, false) ? "\n" : ",\n"; }

  std::uint64_t origin_ns_;
  std::uint64_t dropped_ = 0;
  bool first_ = true;
  std::string out_ = "{\"traceEvents\":[";
};

}  // namespace

std::string chrome_trace(const std::vector<ProcessSpans>& processes) {
  std::uint64_t origin_ns = std::numeric_limits<std::uint64_t>::max();
  for (const ProcessSpans& process : processes) {
    for (const ipc::RecordedSpan& span : process.spans) {
      origin_ns = std::min(origin_ns, span.begin_ns);
    }
  }
  Writer writer(origin_ns);
  for (const ProcessSpans& process : processes) writer.add(process);
  return std::move(writer).finish();
}

}  // namespace k3::cli
