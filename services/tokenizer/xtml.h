// Writes the tags of the chat format as segments to encode one by one.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/ipc/messages.h"

namespace k3::tokenizer {

// Collects segments. Only the markers of tags and an image's tokens may be special: text, names and
// values from outside can never become structure. Empty segments are left out.
class XtmlWriter {
 public:
  struct Attribute {
    std::string_view key;
    std::string_view value;  // unescaped
  };

  // Opening tag. An attribute is four segments; `&` and `"` in its value are escaped.
  void open(std::string_view tag, std::initializer_list<Attribute> attributes = {});
  void open(std::string_view tag, const std::vector<Attribute>& attributes);
  void close(std::string_view tag);
  // Closing tag of a message, and the token that ends it.
  void close_message();
  // Ordinary text as it is.
  void text(std::string_view text);
  // Text of this program's own making whose special tokens count.
  void special(std::string_view text);

  std::vector<ipc::Segment> take() { return std::move(segments_); }

 private:
  std::vector<ipc::Segment> segments_;
};

}  // namespace k3::tokenizer
