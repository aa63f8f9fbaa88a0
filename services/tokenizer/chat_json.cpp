#include "services/tokenizer/chat_json.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

namespace k3::tokenizer {
namespace {

// Deeper nesting is refused: writing a value recurses.
constexpr std::size_t kMaxDepth = 500;

// Builds a value; differs from nlohmann's own builder in keeping large integers.
class Builder : public nlohmann::json_sax<ChatJson> {
 public:
  ChatJson root;
  std::string error;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& digits) override {
    if (digits.find_first_of(".eE") != std::string::npos) return add(value);
    return add(ChatJson::binary(std::vector<std::uint8_t>(digits.begin(), digits.end())));
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(ChatJson::object()); }
  bool start_array(std::size_t) override { return open(ChatJson::array()); }
  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& e) override {
    error = e.what();
    return false;
  }

 private:
  ChatJson& place(ChatJson value) {
    if (open_.empty()) return root = std::move(value);
    ChatJson& parent = *open_.back();
    if (parent.is_object()) return parent[key_] = std::move(value);
    parent.push_back(std::move(value));
    return parent.back();
  }
  bool add(ChatJson value) {
    place(std::move(value));
    return true;
  }
  bool open(ChatJson value) {
    if (open_.size() == kMaxDepth) {
      error = "nested too deeply";
      return false;
    }
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::vector<ChatJson*> open_;  // only the last one grows, so the others stay where they are
  std::string key_;
};

std::string float_text(double value) {
  char buffer[64];
  const auto scientific =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<std::size_t>(scientific.ptr - buffer));
  const int exponent = std::atoi(std::string(shortest.substr(shortest.find('e') + 1)).c_str());
  if (exponent < -4 || exponent >= 16) return std::string(shortest);
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string text(buffer, fixed.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

struct Style {
  std::string_view comma;
  std::string_view colon;
  bool sorted;
};

void write(const ChatJson& value, const Style& style, std::string& out);

void write_object(const ChatJson& value, const Style& style, std::string& out) {
  std::vector<std::pair<std::string_view, const ChatJson*>> members;
  for (const auto& [key, member] : value.items()) members.emplace_back(key, &member);
  // UTF-8 sorts by bytes as by code points.
  if (style.sorted) std::ranges::sort(members, {}, [](const auto& m) { return m.first; });
  out += '{';
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i > 0) out += style.comma;
    out += ChatJson(members[i].first).dump();
    out += style.colon;
    write(*members[i].second, style, out);
  }
  out += '}';
}

void write_array(const ChatJson& value, const Style& style, std::string& out) {
  out += '[';
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (i > 0) out += style.comma;
    write(value[i], style, out);
  }
  out += ']';
}

void write(const ChatJson& value, const Style& style, std::string& out) {
  if (value.is_object()) {
    write_object(value, style, out);
  } else if (value.is_array()) {
    write_array(value, style, out);
  } else if (value.is_binary()) {
    out.append(value.get_binary().begin(), value.get_binary().end());
  } else if (value.is_number_float()) {
    out += float_text(value.get<double>());
  } else {
    out += value.dump();
  }
}

}  // namespace

Result<ChatJson> parse_chat_json(std::string_view text, std::string_view what) {
  Builder builder;
  if (!ChatJson::sax_parse(text.begin(), text.end(), &builder)) {
    return fail(ErrorCode::kUsage, "{}: not JSON: {}", what, builder.error);
  }
  return std::move(builder.root);
}

std::string spaced_json(const ChatJson& value) {
  std::string out;
  write(value, {", ", ": ", false}, out);
  return out;
}

std::string sorted_json(const ChatJson& value) {
  std::string out;
  write(value, {",", ":", true}, out);
  return out;
}

}  // namespace k3::tokenizer
