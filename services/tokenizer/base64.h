// Standard padded base64, decoded strictly.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace k3::tokenizer {

// The bytes `text` encodes; empty when it is not canonical base64: another character, a length that
// is no multiple of four, misplaced padding, or bits behind the last byte.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace k3::tokenizer
