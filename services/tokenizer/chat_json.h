// JSON as the chat format needs it: key order kept, integers of any size kept.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace k3::tokenizer {

using ChatJson = nlohmann::ordered_json;

// Parses `text`. Of duplicate keys the last value stands at the first one's place. An integer
// beyond 64 bits is held as a binary value of its digits (JSON text itself has no binary values).
// kUsage: not JSON; the message says `what` and the place.
Result<ChatJson> parse_chat_json(std::string_view text, std::string_view what);

// `value` with a space behind `,` and `:`, keys in their order.
std::string spaced_json(const ChatJson& value);
// `value` without spaces, keys sorted by code point at every depth.
std::string sorted_json(const ChatJson& value);
// Both write non-ASCII as it is, and numbers shortest: a float with ".0" when whole, with an
// exponent of two digits or more when that is below -4 or at least 16.

}  // namespace k3::tokenizer
