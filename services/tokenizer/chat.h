// The K3 chat format.
#pragma once

#include <string_view>
#include <vector>

#include "common/ipc/messages.h"

namespace k3::tokenizer {

// One user message, and the opening of the assistant's reply up to its think part (`thinking`) or
// its response part. Segments are encoded one by one: only the markers may be special tokens, and
// no piece reaches over a segment's end. `user_text` goes in as it is.
std::vector<ipc::Segment> render_user_turn(std::string_view user_text, bool thinking);

}  // namespace k3::tokenizer
