// The last spans of a process, in a buffer of fixed size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace k3::spans {

struct Span {
  const char* name = "";  // of static storage
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;    // both of CLOCK_MONOTONIC
  std::uint64_t trace_id = 0;  // of the work it belongs to, as in the envelope; 0 for none
  std::uint32_t argument = 0;  // what the name calls for: a layer, a count
  std::uint32_t thread = 0;    // the kernel's number; 0: none, such spans may overlap
};

struct Recorded {
  std::vector<Span> spans;    // in the order they ended
  std::uint64_t dropped = 0;  // older ones that found no room
};

// Keeps the latest `capacity` spans and counts those it dropped for them. The memory is taken once,
// at construction. One thread at a time.
class SpanRing {
 public:
  // `capacity` is above 0.
  explicit SpanRing(std::size_t capacity) : spans_(capacity) {}

  void add(const Span& span);
  // All that is held, and the number dropped since the last call; the ring is then empty.
  Recorded take();

 private:
  std::vector<Span> spans_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace k3::spans
