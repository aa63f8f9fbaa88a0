#include "common/ipc/span_messages.h"

#include <map>
#include <string_view>

namespace k3::ipc {

Spans span_message(const spans::Recorded& recorded) {
  Spans message{{}, {}, recorded.dropped};
  message.spans.reserve(recorded.spans.size());
  std::map<std::string_view, std::uint16_t> known;
  for (const spans::Span& span : recorded.spans) {
    const auto next = static_cast<std::uint16_t>(known.size());
    const auto [found, added] = known.try_emplace(span.name, next);
    if (added) message.names.emplace_back(span.name);
    message.spans.push_back(
        {found->second, span.thread, span.argument, span.begin_ns, span.end_ns, span.trace_id});
  }
  return message;
}

}  // namespace k3::ipc
