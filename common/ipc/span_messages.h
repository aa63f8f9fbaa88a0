// The wire form of recorded spans.
#pragma once

#include "common/ipc/messages.h"
#include "common/observe/spans.h"

namespace k3::ipc {

// The same spans with each name listed once. Any thread.
Spans span_message(const spans::Recorded& recorded);

}  // namespace k3::ipc
