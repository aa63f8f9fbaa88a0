#include "services/tokenizer/chat.h"

#include <string>

namespace k3::tokenizer {
namespace {

using Segments = std::vector<ipc::Segment>;

void add_marker(Segments& out, std::string_view marker) {
  out.push_back({std::string(marker), true});
}

void add_text(Segments& out, std::string_view text) { out.push_back({std::string(text), false}); }

void open_message(Segments& out, std::string_view role) {
  add_marker(out, "<|open|>");
  add_text(out, "message");
  // An attribute is four segments.
  add_text(out, " role");
  add_text(out, "=\"");
  add_text(out, role);
  add_text(out, "\"");
  add_marker(out, "<|sep|>");
}

void close_message(Segments& out) {
  add_marker(out, "<|close|>");
  add_text(out, "message");
  add_marker(out, "<|sep|>");
  add_marker(out, "<|end_of_msg|>");
}

void open_channel(Segments& out, std::string_view name) {
  add_marker(out, "<|open|>");
  add_text(out, name);
  add_marker(out, "<|sep|>");
}

}  // namespace

std::vector<ipc::Segment> render_user_turn(std::string_view user_text, bool thinking) {
  Segments out;
  open_message(out, "user");
  add_text(out, user_text);
  close_message(out);
  open_message(out, "assistant");
  open_channel(out, thinking ? "think" : "response");
  return out;
}

}  // namespace k3::tokenizer
