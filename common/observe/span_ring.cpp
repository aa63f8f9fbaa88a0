#include "common/observe/span_ring.h"

#include <utility>

namespace k3::spans {

void SpanRing::add(const Span& span) {
  spans_[(first_ + count_) % spans_.size()] = span;
  if (count_ < spans_.size()) {
    ++count_;
  } else {
    first_ = (first_ + 1) % spans_.size();
    ++dropped_;
  }
}

Recorded SpanRing::take() {
  Recorded recorded;
  recorded.spans.reserve(count_);
  for (std::size_t i = 0; i < count_; ++i) {
    recorded.spans.push_back(spans_[(first_ + i) % spans_.size()]);
  }
  first_ = count_ = 0;
  recorded.dropped = std::exchange(dropped_, 0);
  return recorded;
}

}  // namespace k3::spans
