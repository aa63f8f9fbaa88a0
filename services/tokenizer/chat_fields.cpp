#include "services/tokenizer/chat_fields.h"

namespace k3::tokenizer {

const ChatJson* find_field(const ChatJson& object, std::string_view key) {
  const auto found = object.find(std::string(key));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<std::string> string_field(const ChatJson& object, std::string_view key,
                                 std::string_view where) {
  const ChatJson* value = find_field(object, key);
  if (value == nullptr) return std::string();
  if (!value->is_string()) {
    return fail(ErrorCode::kUsage, "{}.{}: a {}, expected a string", where, key,
                value->type_name());
  }
  return value->get<std::string>();
}

Result<const ChatJson*> list_field(const ChatJson& object, std::string_view key,
                                   std::string_view where) {
  const ChatJson* value = find_field(object, key);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) {
    return fail(ErrorCode::kUsage, "{}.{}: a {}, expected a list", where, key, value->type_name());
  }
  return value->empty() ? nullptr : value;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\n\v\f\r") == std::string_view::npos;
}

}  // namespace k3::tokenizer
