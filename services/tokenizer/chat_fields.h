// Reads the fields of a chat request with errors that say where.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"
#include "services/tokenizer/chat_json.h"

namespace k3::tokenizer {

// The member of `object`, or null when it is absent or null. Borrowed from `object`.
const ChatJson* find_field(const ChatJson& object, std::string_view key);

// The string at `key`, empty when absent or null. kUsage: another type; the message starts with
// `where`, such as "messages[2]".
Result<std::string> string_field(const ChatJson& object, std::string_view key,
                                 std::string_view where);

// The list at `key`, or null when absent, null or empty. kUsage: another type.
Result<const ChatJson*> list_field(const ChatJson& object, std::string_view key,
                                   std::string_view where);

// True when `text` is empty or white space only.
bool is_blank(std::string_view text);

}  // namespace k3::tokenizer
