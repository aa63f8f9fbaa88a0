// The masks of token_matcher.h against every token of the released vocabulary.
#include "common/grammar/token_matcher.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/services/tokenizer/reference_tokenizer.h"

namespace k3::grammar {
namespace {

constexpr std::string_view kReply = R"({"thinking": true, "tool_choice": "auto",
  "response_format": {"type": "json_schema", "schema": {"type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer",
      "minimum": 7, "maximum": 1234}, "tags": {"type": "array", "items": {"enum": ["a", "ab", 5]}},
      "more": {}}, "required": ["name"]}},
  "tools": [{"name": "f", "parameters": {"properties": {"q": {"type": "string"},
    "n": {"type": ["number", "null"]}}, "required": ["q"]}}]})";

// Ids of markup and the texts between them.
struct Piece {
  std::int32_t id = -1;
  std::string text;
};

class Masks : public testing::Test {
 protected:
  void load(tokenizer::Vocabulary vocabulary) {
    vocabulary_ = std::make_unique<tokenizer::Vocabulary>(std::move(vocabulary));
    std::vector<std::string_view> text;
    for (std::int32_t id = 0; id < vocabulary_->ranks(); ++id) {
      text.push_back(vocabulary_->bytes(id));
    }
    markup_ = {{id("<|open|>"), kOpen},
               {id("<|close|>"), kClose},
               {id("<|sep|>"), kSep},
               {id("<|end_of_msg|>"), kEnd},
               {id("[EOS]"), kEnd}};
    trie_ = std::make_shared<TokenTrie>(
        Tokens{text, markup_, static_cast<std::size_t>(vocabulary_->size())});
  }

  std::int32_t id(std::string_view name) const { return vocabulary_->special(name).value(); }

  // What the grammar takes, symbol by symbol, with an automaton of its own.
  bool takes(Automaton& automaton, Automaton::State state, std::int32_t token) const {
    for (const auto& [marked, symbol] : markup_) {
      if (marked == token) return automaton.step(state, symbol) != Automaton::kDead;
    }
    if (token >= vocabulary_->ranks()) return false;
    for (const char byte : vocabulary_->bytes(token)) {
      state = automaton.step(state, static_cast<std::uint8_t>(byte));
      if (state == Automaton::kDead) return false;
    }
    return true;
  }

  // Compares all ids of the mask in front of every token of `pieces`; texts go byte by byte.
  void compare(const std::vector<Piece>& pieces) {
    const auto grammar = compile_reply(kReply);
    ASSERT_TRUE(grammar) << grammar.error().message;
    TokenMatcher matcher(*grammar, trie_);
    Automaton plain(grammar->program, grammar->start);
    Automaton::State state = plain.start();
    const auto check = [&] {
      const auto mask = matcher.allowed();
      ASSERT_EQ(mask.size(), (static_cast<std::size_t>(vocabulary_->size()) + 63) / 64);
      for (std::int32_t token = 0; token < vocabulary_->size(); ++token) {
        const auto bit = static_cast<std::size_t>(token);
        const bool allowed = (mask[bit / 64] >> (bit % 64)) % 2 != 0;
        ASSERT_EQ(allowed, takes(plain, state, token)) << "token " << token;
      }
    };
    const auto go = [&](std::int32_t token, Symbol symbol) {
      ASSERT_NO_FATAL_FAILURE(check());
      ASSERT_FALSE(matcher.ended());
      const Status status = matcher.advance(token);
      ASSERT_TRUE(status) << status.error().message;
      state = plain.step(state, symbol);
    };
    for (const Piece& piece : pieces) {
      for (const auto& [marked, symbol] : markup_) {
        if (marked != piece.id) continue;
        ASSERT_NO_FATAL_FAILURE(go(piece.id, symbol));
      }
      for (const char byte : piece.text) {
        const auto token = vocabulary_->rank(std::string_view(&byte, 1));
        ASSERT_NO_FATAL_FAILURE(go(*token, static_cast<std::uint8_t>(byte)));
      }
    }
    EXPECT_TRUE(matcher.ended());
    EXPECT_FALSE(matcher.advance(id("[EOS]")));
  }

  std::vector<Piece> tag(std::string_view kind, std::string text) const {
    return {{id(kind), ""}, {-1, std::move(text)}, {id("<|sep|>"), ""}};
  }

  void compare_replies() {
    const auto add = [](std::vector<Piece>& to, std::vector<Piece> more) {
      to.insert(to.end(), more.begin(), more.end());
    };
    std::vector<Piece> formatted{{-1, "x\xC3\xA9\xE4\xBD\xA0"}};
    add(formatted, tag("<|close|>", "think"));
    add(formatted, tag("<|open|>", "response"));
    std::vector<Piece> called = formatted;
    add(formatted, {{-1,
                     "{\"name\": \"\xF0\x9F\x98\x80\\u00e9\\\"a\",\"age\":71,\n  \"tags\":"
                     "[\"ab\",5],\"more\":[1.5e3,{\"x\":null}],\"na\":true}"}});
    add(formatted, tag("<|close|>", "response"));
    add(formatted, tag("<|close|>", "message"));
    formatted.push_back({id("<|end_of_msg|>"), ""});
    compare(formatted);
    add(called, tag("<|close|>", "response"));
    add(called, tag("<|open|>", "tools"));
    add(called, tag("<|open|>", "call tool=\"f\" index=\"1\""));
    add(called, tag("<|open|>", "argument key=\"q\" type=\"string\""));
    called.push_back({-1, "a \"q\"\n"});
    add(called, tag("<|close|>", "argument"));
    add(called, tag("<|open|>", "argument key=\"n\" type=\"number\""));
    called.push_back({-1, "-0.5"});
    add(called, tag("<|close|>", "argument"));
    add(called, tag("<|close|>", "call"));
    add(called, tag("<|close|>", "tools"));
    add(called, tag("<|close|>", "message"));
    called.push_back({id("[EOS]"), ""});
    compare(called);
  }

  std::unique_ptr<tokenizer::Vocabulary> vocabulary_;
  std::vector<std::pair<std::int32_t, Symbol>> markup_;
  std::shared_ptr<const TokenTrie> trie_;
};

TEST_F(Masks, EveryTokenOfTheReleasedVocabulary) {
  K3_REFERENCE_OR_SKIP(reference);
  load(test::reference_vocabulary(reference));
  compare_replies();
}

TEST_F(Masks, EveryTokenOfTheDemoVocabulary) {
  load(test::demo_vocabulary());
  compare_replies();
}

// States are forgotten on the way; the masks stay what they were.
TEST_F(Masks, AfterManyStates) {
  load(test::demo_vocabulary());
  const auto grammar = compile_document(R"({"type": "string", "maxLength": 20000})");
  ASSERT_TRUE(grammar) << grammar.error().message;
  TokenMatcher matcher(*grammar, trie_);
  ASSERT_TRUE(matcher.advance(*vocabulary_->rank("\"")));
  const auto first = matcher.allowed();
  const std::vector<std::uint64_t> start(first.begin(), first.end());
  for (int i = 0; i < 19000; ++i) ASSERT_TRUE(matcher.advance(*vocabulary_->rank("x")));
  const auto then = matcher.allowed();
  EXPECT_EQ(start, (std::vector<std::uint64_t>(then.begin(), then.end())));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(matcher.advance(*vocabulary_->rank("x")));
  EXPECT_FALSE(matcher.advance(*vocabulary_->rank("x")));
  EXPECT_TRUE(matcher.advance(*vocabulary_->rank("\"")));
  EXPECT_TRUE(matcher.advance(id("<|end_of_msg|>")));
  EXPECT_TRUE(matcher.ended());
}

}  // namespace
}  // namespace k3::grammar
