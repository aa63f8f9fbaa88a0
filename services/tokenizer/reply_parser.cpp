#include "services/tokenizer/reply_parser.h"

#include <algorithm>

#include "services/tokenizer/decoder.h"

namespace k3::tokenizer {
namespace {

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// The unescaped value of ` key="value"` in a tag's header; `otherwise` when it is not there.
std::string attribute(const std::string& header, std::string_view key, std::string_view otherwise) {
  const std::string start = " " + std::string(key) + "=\"";
  const std::size_t at = header.find(start);
  if (at == std::string::npos) return std::string(otherwise);
  const std::size_t begin = at + start.size();
  const std::string value = header.substr(begin, header.find('"', begin) - begin);
  return replace_all(replace_all(value, "&quot;", "\""), "&amp;", "&");
}

}  // namespace

ReplyParser::ReplyParser(const Vocabulary& vocabulary, bool thinking)
    : vocabulary_(vocabulary), stack_{thinking ? "think" : "response"} {}

Status ReplyParser::push(std::span<const std::int32_t> ids) {
  for (const std::int32_t id : ids) {
    if (!reply_.ended) K3_TRY(push_one(id));
  }
  return {};
}

Status ReplyParser::finish() { return decode({}, true); }

Status ReplyParser::push_one(std::int32_t id) {
  const bool opens = id == vocabulary_.special("<|open|>");
  const bool closes = id == vocabulary_.special("<|close|>");
  const bool separates = id == vocabulary_.special("<|sep|>");
  const bool stops = std::ranges::count(vocabulary_.stop_ids(), id) > 0;
  if (!opens && !closes && !separates && !stops) return decode({&id, 1}, false);
  K3_TRY(decode({}, true));
  if (separates) end_header();
  header_text_.clear();
  header_ = opens ? Header::kOpening : closes ? Header::kClosing : Header::kNone;
  reply_.ended = stops;
  return {};
}

Status ReplyParser::decode(std::span<const std::int32_t> ids, bool last) {
  K3_ASSIGN(DecodedText decoded, decode_ids(vocabulary_, ids, pending_, last));
  pending_ = std::move(decoded.pending);
  add_text(decoded.text);
  return {};
}

void ReplyParser::add_text(std::string_view text) {
  if (header_ != Header::kNone) {
    header_text_ += text;
  } else if (stack_.empty()) {
    return;
  } else if (stack_.back() == "think") {
    reply_.reasoning += text;
  } else if (stack_.back() == "response") {
    reply_.content += text;
  } else if (stack_.back() == "argument" || stack_.back() == "json") {
    value_ += text;
  }
}

void ReplyParser::end_header() {
  const std::string name = header_text_.substr(0, header_text_.find(' '));
  if (header_ == Header::kOpening) open(name);
  if (header_ == Header::kClosing) close(name);
}

void ReplyParser::open(std::string name) {
  const bool channel = name == "response" || name == "tools";
  if (channel && !stack_.empty() && stack_.back() == "think") stack_.pop_back();
  if (name == "call") call_ = {attribute(header_text_, "tool", ""), ChatJson::object()};
  if (name == "argument" || name == "json") {
    value_.clear();
    key_ = attribute(header_text_, "key", "");
    type_ = attribute(header_text_, "type", "string");
  }
  stack_.push_back(std::move(name));
}

void ReplyParser::close(std::string_view name) {
  if (std::ranges::find(stack_, name) == stack_.end()) return;
  for (bool found = false; !found; stack_.pop_back()) {
    found = stack_.back() == name;
    if (found) end_element(name);
  }
}

void ReplyParser::end_element(std::string_view name) {
  if (name == "call") reply_.calls.push_back(std::move(call_));
  if (name == "json") call_.arguments = value_;
  if (name != "argument" || !call_.arguments.is_object()) return;
  auto parsed = parse_chat_json(value_, "argument");
  call_.arguments[key_] = type_ != "string" && parsed ? std::move(*parsed) : ChatJson(value_);
}

}  // namespace k3::tokenizer
