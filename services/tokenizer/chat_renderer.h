// A conversation in the chat format.
#pragma once

#include <vector>

#include "common/base/result.h"
#include "common/ipc/messages.h"
#include "services/tokenizer/chat_json.h"

namespace k3::tokenizer {

// The segments of `request`, an object with messages (system, user, assistant, tool; other roles
// are passed over), tools, thinking (default true), thinking_effort (absent: no such message),
// tool_choice, response_format, add_generation_prompt (default true), image_prompts. They are
// encoded one by one: only markers and image tokens may be special tokens. kUsage names the field,
// such as messages[2].content[0].type. Any thread.
Result<std::vector<ipc::Segment>> render_chat(const ChatJson& request);

}  // namespace k3::tokenizer
