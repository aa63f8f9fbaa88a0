// Spans as a file for chrome://tracing, Perfetto and the like.
#pragma once

#include <string>
#include <vector>

#include "tools/k3/span_collector.h"

namespace k3::cli {

// Chrome's trace event format, as JSON: an object with "traceEvents", complete events ("X", times
// in microseconds from the first span on) and the names of processes and threads ("M"). "args" of
// an event hold its token (0: prefill, or none) and its argument ("n"). Spans of no thread are
// spread over as few made-up threads as keep them apart. "otherData" holds the spans dropped.
std::string chrome_trace(const std::vector<ProcessSpans>& processes);

}  // namespace k3::cli
