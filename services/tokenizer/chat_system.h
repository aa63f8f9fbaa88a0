// The system messages that carry a request's settings.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"
#include "services/tokenizer/chat_json.h"
#include "services/tokenizer/xtml.h"

namespace k3::tokenizer {

// Declares `tools` ahead of the conversation.
void write_tools(const ChatJson& tools, XtmlWriter& out);
// Declares further `tools` in the middle of it.
void write_added_tools(const ChatJson& tools, XtmlWriter& out);
// kUsage: not low, high or max.
Status write_effort(std::string_view effort, XtmlWriter& out);
// Writes something for "required" and "none" only. kUsage: neither these, "auto", nor an object.
Status write_tool_choice(const ChatJson& choice, XtmlWriter& out);
// Writes nothing for type text. kUsage: neither text, json_object nor json_schema with a schema.
Status write_response_format(const ChatJson& format, XtmlWriter& out);

}  // namespace k3::tokenizer
