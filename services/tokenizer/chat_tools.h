// Tool calls of the assistant, and the results that answer them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "services/tokenizer/chat_json.h"
#include "services/tokenizer/xtml.h"

namespace k3::tokenizer {

struct ToolCall {
  std::string id;
  std::string name;
  const ChatJson* arguments;  // null when there are none; borrowed from the message
};

// The calls of an assistant message, named `where` in errors. kUsage: a field of a wrong type, a
// call without name.
Result<std::vector<ToolCall>> read_tool_calls(const ChatJson& message, std::string_view where);

// Writes the tools channel, nothing without calls. Arguments are an object or its JSON text; text
// that is not JSON goes out as it is. kUsage: arguments that are JSON but no object.
Status write_tool_calls(const std::vector<ToolCall>& calls, std::string_view where,
                        XtmlWriter& out);

struct ToolResult {
  std::size_t message;  // index in the request
  std::string name;     // of the matched call; empty when the run is not matched
};

// The order in which to write the tool messages `first` to `end` - 1: that of `calls` when every
// message names one by id, as given otherwise. kUsage: an id that is no string.
Result<std::vector<ToolResult>> order_tool_results(const ChatJson& messages, std::size_t first,
                                                   std::size_t end,
                                                   const std::vector<ToolCall>& calls);

}  // namespace k3::tokenizer
