// The content of one message: text, parts, images.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "services/tokenizer/chat_json.h"
#include "services/tokenizer/xtml.h"

namespace k3::tokenizer {

// Writes contents, giving out the images of a request in order of appearance.
class ContentWriter {
 public:
  // `prompts`: one image's tokens each, <|media_begin|>image WxH<|media_content|><|media_pad|>
  // <|media_end|>. kUsage: another shape.
  static Result<ContentWriter> create(std::vector<std::string> prompts);

  // Content of `message` (named `where` in errors): nothing, a string, or a list of parts, each its
  // own segment. Without any prompts an image part is its placeholder and a placeholder in text
  // stays text. kUsage: another type, or more images than prompts.
  Status write(const ChatJson& message, std::string_view where, XtmlWriter& out);
  // kUsage: prompts are left over.
  Status finish() const;

 private:
  explicit ContentWriter(std::vector<std::string> prompts) : prompts_(std::move(prompts)) {}
  Status write_part(const ChatJson& part, std::string_view where, XtmlWriter& out);
  Status write_text(std::string_view text, std::string_view where, XtmlWriter& out);
  Status write_image(std::string_view where, XtmlWriter& out);

  std::vector<std::string> prompts_;
  std::size_t used_ = 0;
};

}  // namespace k3::tokenizer
