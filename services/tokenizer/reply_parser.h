// Reads a reply of the assistant from its token ids, a few at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "services/tokenizer/chat_json.h"
#include "services/tokenizer/vocabulary.h"

namespace k3::tokenizer {

struct ReplyCall {
  std::string name;
  ChatJson arguments = ChatJson::object();  // or the text of a json element
};

struct Reply {
  std::string reasoning;
  std::string content;
  std::vector<ReplyCall> calls;  // complete ones, in order of appearance
  bool ended = false;            // a stop token came; ids behind it are ignored
};

// Structure is decided by token id alone: text that spells a marker stays text. Tags that fit
// nowhere are ignored. How the ids are split into calls makes no difference. One thread at a time.
class ReplyParser {
 public:
  // The prompt left think open (`thinking`) or response. `vocabulary` is borrowed.
  ReplyParser(const Vocabulary& vocabulary, bool thinking);

  // kUsage: an id outside the vocabulary.
  Status push(std::span<const std::int32_t> ids);
  // No more ids: an unfinished character becomes U+FFFD.
  Status finish();
  // What is known so far, in whole characters.
  const Reply& reply() const { return reply_; }

 private:
  enum class Header { kNone, kOpening, kClosing };

  Status push_one(std::int32_t id);
  Status decode(std::span<const std::int32_t> ids, bool last);
  void add_text(std::string_view text);
  void end_header();
  void open(std::string name);
  void close(std::string_view name);
  void end_element(std::string_view name);

  const Vocabulary& vocabulary_;
  Reply reply_;
  std::vector<std::string> stack_;  // open elements
  Header header_ = Header::kNone;
  std::string header_text_;
  std::string pending_;  // of an unfinished character
  std::string value_;    // of the open argument or json element
  std::string key_;
  std::string type_;
  ReplyCall call_;
};

}  // namespace k3::tokenizer
