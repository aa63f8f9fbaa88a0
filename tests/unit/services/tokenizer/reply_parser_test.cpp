// Replies against the goldens, at every split into calls.
#include "services/tokenizer/reply_parser.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/unit/services/tokenizer/reference_tokenizer.h"

namespace k3::tokenizer {
namespace {

ChatJson as_json(const Reply& reply) {
  ChatJson calls = ChatJson::array();
  for (const auto& call : reply.calls) {
    calls.push_back({{"name", call.name}, {"arguments", call.arguments}});
  }
  return {{"reasoning_content", reply.reasoning},
          {"content", reply.content},
          {"tool_calls", calls},
          {"turn_ended", reply.ended}};
}

TEST(ReplyParser, ReadsEverySettledReplyAtEverySplit) {
  K3_REFERENCE_OR_SKIP(dir);
  const Vocabulary vocabulary = test::reference_vocabulary(dir);
  std::ostringstream text;
  text << std::ifstream(dir / "tokenizer" / "reply_golden.json").rdbuf();
  const ChatJson golden = parse_chat_json(text.str(), "reply_golden.json").value();
  int settled = 0;
  for (const ChatJson& expected : golden.at("cases")) {
    if (!expected.at("settled").get<bool>()) continue;
    ++settled;
    SCOPED_TRACE(expected.at("name").get<std::string>());
    const auto ids = expected.at("ids").get<std::vector<std::int32_t>>();
    for (std::size_t split = 0; split <= ids.size(); ++split) {
      ReplyParser parser(vocabulary, expected.at("prompt_left_open") == "think");
      ASSERT_TRUE(parser.push(std::span(ids).first(split)));
      ASSERT_TRUE(parser.push(std::span(ids).subspan(split)));
      ASSERT_TRUE(parser.finish());
      EXPECT_EQ(as_json(parser.reply()).dump(), expected.at("expected").dump()) << split;
    }
  }
  EXPECT_EQ(settled, 21);
}

}  // namespace
}  // namespace k3::tokenizer
