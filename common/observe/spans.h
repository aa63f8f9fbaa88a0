// What this process is doing when: spans of time, recorded while somebody asks for them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/observe/span_ring.h"

// One recorder a process, like its log: a span is one line in the function it measures, which need
// not be handed a recorder. Off until set_on(true); off, a Scope costs one relaxed load and a
// branch. Every function may be called from any thread, so that the event loop's thread and the
// reader threads of a service record; the kernels' team must not, its products are too short.
namespace k3::spans {

// The most spans held between two take(). About 3 MB, allocated when spans are first switched on.
inline constexpr std::size_t kCapacity = std::size_t{1} << 16;

namespace detail {
inline std::atomic<bool> enabled = false;
}

inline bool on() { return detail::enabled.load(std::memory_order_relaxed); }

// Starts or stops recording. Starting drops what was not taken.
void set_on(bool on);

// The work this process does now: spans that begin from here on belong to it. 0 for none.
void set_trace_id(std::uint64_t trace_id);
std::uint64_t trace_id();

// CLOCK_MONOTONIC.
std::uint64_t now_ns();

// A span of no thread from `begin_ns`, an earlier now_ns(), to now. Such spans may overlap one
// another. Recorded when spans are on. `name` is of static storage.
void record_since(std::uint64_t begin_ns, const char* name, std::uint32_t argument);

// All spans recorded and not taken yet.
Recorded take();

// A span of the calling thread that lasts as long as this object, recorded when spans were on at
// its beginning and are on at its end. `name` is of static storage.
class Scope {
 public:
  explicit Scope(const char* name, std::uint32_t argument = 0) : name_(name), argument_(argument) {
    if (on()) start();
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() {
    if (begin_ns_ != 0) finish();
  }

 private:
  void start();
  void finish() const;

  const char* name_;
  std::uint32_t argument_;
  std::uint64_t begin_ns_ = 0;  // 0: not recorded
  std::uint64_t trace_id_ = 0;
};

}  // namespace k3::spans
