#include "services/tokenizer/xtml.h"

namespace k3::tokenizer {
namespace {

std::string escape(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void XtmlWriter::open(std::string_view tag, std::initializer_list<Attribute> attributes) {
  open(tag, std::vector<Attribute>(attributes));
}

void XtmlWriter::open(std::string_view tag, const std::vector<Attribute>& attributes) {
  special("<|open|>");
  text(tag);
  for (const auto& [key, value] : attributes) {
    text(" " + std::string(key));
    text("=\"");
    text(escape(value));
    text("\"");
  }
  special("<|sep|>");
}

void XtmlWriter::close(std::string_view tag) {
  special("<|close|>");
  text(tag);
  special("<|sep|>");
}

void XtmlWriter::close_message() {
  close("message");
  special("<|end_of_msg|>");
}

void XtmlWriter::text(std::string_view text) {
  if (!text.empty()) segments_.push_back({std::string(text), false});
}

void XtmlWriter::special(std::string_view text) { segments_.push_back({std::string(text), true}); }

}  // namespace k3::tokenizer
