#include "services/tokenizer/chat_content.h"

#include <algorithm>

#include "services/tokenizer/chat_fields.h"

namespace k3::tokenizer {
namespace {

constexpr std::string_view kPlaceholder = "<|kimi_image_placeholder|>";

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool take_digits(std::string_view& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  text.remove_prefix(digits);
  return digits > 0;
}

bool is_image_prompt(std::string_view text) {
  return take_prefix(text, "<|media_begin|>image ") && take_digits(text) &&
         take_prefix(text, "x") && take_digits(text) &&
         text == "<|media_content|><|media_pad|><|media_end|>";
}

}  // namespace

Result<ContentWriter> ContentWriter::create(std::vector<std::string> prompts) {
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (!is_image_prompt(prompts[i])) {
      return fail(ErrorCode::kUsage, "image_prompts[{}]: not an image's tokens", i);
    }
  }
  return ContentWriter(std::move(prompts));
}

Status ContentWriter::write(const ChatJson& message, std::string_view where, XtmlWriter& out) {
  const ChatJson* content = find_field(message, "content");
  if (content == nullptr) return {};
  const std::string place = fmt::format("{}.content", where);
  if (content->is_string()) {
    return write_text(content->get_ref<const std::string&>(), place, out);
  }
  if (!content->is_array()) {
    return fail(ErrorCode::kUsage, "{}: a {}, expected a string or a list of parts", place,
                content->type_name());
  }
  for (std::size_t i = 0; i < content->size(); ++i) {
    K3_TRY(write_part((*content)[i], fmt::format("{}[{}]", place, i), out));
  }
  return {};
}

Status ContentWriter::write_part(const ChatJson& part, std::string_view where, XtmlWriter& out) {
  if (!part.is_object()) {
    return fail(ErrorCode::kUsage, "{}: a {}, expected an object", where, part.type_name());
  }
  K3_ASSIGN(const std::string type, string_field(part, "type", where));
  if (type == "image" || type == "image_url") return write_image(where, out);
  if (type != "text") {
    return fail(ErrorCode::kUsage, "{}.type: \"{}\", expected text, image or image_url", where,
                type);
  }
  K3_ASSIGN(const std::string text, string_field(part, "text", where));
  return write_text(text, where, out);
}

Status ContentWriter::write_text(std::string_view text, std::string_view where, XtmlWriter& out) {
  while (!prompts_.empty()) {
    const std::size_t at = text.find(kPlaceholder);
    if (at == std::string_view::npos) break;
    out.text(text.substr(0, at));
    K3_TRY(write_image(where, out));
    text.remove_prefix(at + kPlaceholder.size());
  }
  out.text(text);
  return {};
}

Status ContentWriter::write_image(std::string_view where, XtmlWriter& out) {
  if (prompts_.empty()) {
    out.special(kPlaceholder);
    return {};
  }
  if (used_ == prompts_.size()) {
    return fail(ErrorCode::kUsage, "{}: an image more than the {} image_prompts", where, used_);
  }
  out.special(prompts_[used_++]);
  return {};
}

Status ContentWriter::finish() const {
  if (used_ == prompts_.size()) return {};
  return fail(ErrorCode::kUsage, "image_prompts: {}, but the messages hold {} images",
              prompts_.size(), used_);
}

}  // namespace k3::tokenizer
