#include "common/observe/spans.h"

#include <unistd.h>

#include <ctime>
#include <mutex>
#include <optional>

namespace k3::spans {
namespace {

struct Recorder {
  std::mutex mutex;
  std::optional<SpanRing> ring;  // from the first set_on(true) on
  std::atomic<std::uint64_t> trace_id = 0;
};

Recorder& recorder() {
  static Recorder instance;
  return instance;
}

std::uint32_t thread_number() {
  thread_local const auto number = static_cast<std::uint32_t>(::gettid());
  return number;
}

void record(const Span& span) {
  Recorder& self = recorder();
  const std::scoped_lock lock(self.mutex);
  if (on() && self.ring) self.ring->add(span);
}

}  // namespace

void set_on(bool on) {
  Recorder& self = recorder();
  const std::scoped_lock lock(self.mutex);
  if (on && !self.ring) self.ring.emplace(kCapacity);
  if (on && !spans::on()) (void)self.ring->take();
  detail::enabled.store(on, std::memory_order_relaxed);
}

void set_trace_id(std::uint64_t trace_id) {
  recorder().trace_id.store(trace_id, std::memory_order_relaxed);
}

std::uint64_t trace_id() { return recorder().trace_id.load(std::memory_order_relaxed); }

std::uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

void record_since(std::uint64_t begin_ns, const char* name, std::uint32_t argument) {
  if (on()) record({name, begin_ns, now_ns(), trace_id(), argument, 0});
}

Recorded take() {
  Recorder& self = recorder();
  const std::scoped_lock lock(self.mutex);
  return self.ring ? self.ring->take() : Recorded{};
}

void Scope::start() {
  begin_ns_ = now_ns();
  trace_id_ = trace_id();
}

void Scope::finish() const {
  record({name_, begin_ns_, now_ns(), trace_id_, argument_, thread_number()});
}

}  // namespace k3::spans
