#include "services/tokenizer/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/services/tokenizer/reference_tokenizer.h"
#include "tests/unit/support/temp_dir.h"

namespace k3::tokenizer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The 256 bytes in order, as the demo model has them.
std::vector<std::string> byte_lines() {
  const std::string file = test::read_all(test::demo_model() / "tiktoken.model");
  std::istringstream in(file);
  std::vector<std::string> lines;
  for (std::string line; lines.size() < 256 && std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

std::string error_of(const std::vector<std::string>& lines) {
  const auto parsed = Vocabulary::parse(join(lines), std::nullopt, "dir/tiktoken.model");
  if (parsed) return "accepted";
  EXPECT_EQ(parsed.error().code, ErrorCode::kUsage);
  return parsed.error().message;
}

std::string error_of(const SpecialNames& names) {
  const auto parsed = Vocabulary::parse(join(byte_lines()), names, "dir/tiktoken.model");
  return parsed ? "accepted" : parsed.error().message;
}

SpecialNames required_names() {
  return {{257, "[EOS]"},
          {258, "<|end_of_msg|>"},
          {259, "<|open|>"},
          {260, "<|close|>"},
          {261, "<|sep|>"}};
}

TEST(Vocabulary, ReadsTheDemoModel) {
  const Vocabulary vocabulary = test::demo_vocabulary();
  EXPECT_EQ(vocabulary.ranks(), 3840);
  EXPECT_EQ(vocabulary.size(), 4096);
  EXPECT_EQ(vocabulary.bytes(0), std::string_view("\0", 1));
  EXPECT_EQ(vocabulary.rank("A"), 65);
  EXPECT_EQ(vocabulary.bytes(3843), "<|open|>");
  EXPECT_EQ(vocabulary.bytes(3848), "<|reserved_token_3848|>");
  EXPECT_EQ(vocabulary.special("[PAD]"), 4095);
  EXPECT_EQ(vocabulary.rank("<|open|>"), std::nullopt);
  EXPECT_EQ(vocabulary.stop_ids(), (std::vector<std::int32_t>{3842, 3841}));
}

TEST(Vocabulary, AbsentIsNotAnError) {
  const test::TempDir dir;
  const auto loaded = Vocabulary::load(dir.path());
  ASSERT_TRUE(loaded);
  EXPECT_FALSE(loaded->has_value());
}

TEST(Vocabulary, TakesReleasedNamesWithoutAConfiguration) {
  const test::TempDir dir;
  std::ofstream(dir.path() / "tiktoken.model") << join(byte_lines());
  const auto loaded = Vocabulary::load(dir.path());
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ((*loaded)->size(), 512);
  EXPECT_EQ((*loaded)->special("<|open|>"), 259);
  EXPECT_EQ((*loaded)->special("<|media_pad|>"), 277);
  EXPECT_EQ((*loaded)->bytes(264), "<|reserved_token_264|>");
}

TEST(Vocabulary, RefusesMalformedLinesByNumber) {
  auto lines = byte_lines();
  EXPECT_EQ(error_of(lines), "accepted");
  const auto with = [&](std::size_t line, const std::string& text) {
    auto changed = lines;
    changed[line - 1] = text;
    return error_of(changed);
  };
  EXPECT_THAT(with(3, "Ag=="), HasSubstr("dir/tiktoken.model:3:"));
  EXPECT_THAT(with(3, "Ag= 2"), AllOf(HasSubstr(":3:"), HasSubstr("Ag=")));
  EXPECT_THAT(with(3, " 2"), HasSubstr(":3:"));
  EXPECT_THAT(with(3, "Ag== x"),
              AllOf(HasSubstr(":3:"), HasSubstr("\"x\""), HasSubstr("2 expected")));
  EXPECT_THAT(with(3, "Ag== 2\r"), HasSubstr(":3:"));
  EXPECT_THAT(with(3, "Ag== -2"), HasSubstr(":3:"));
  EXPECT_THAT(with(3, "Ag==  2"), HasSubstr(":3:"));
  EXPECT_THAT(with(3, "Ag== 99999999999"), HasSubstr(":3:"));
  EXPECT_THAT(with(5, "AAE= 5"), AllOf(HasSubstr(":5:"), HasSubstr("4 expected")));
  EXPECT_THAT(with(5, "Ag== 4"), AllOf(HasSubstr(":5:"), HasSubstr("line 3")));
  EXPECT_THAT(with(256, "AAE= 255"), HasSubstr("0xff"));
  EXPECT_THAT(with(7, ""), HasSubstr(":7:"));
}

TEST(Vocabulary, RefusesACutOffFile) {
  std::string text = join(byte_lines());
  text.pop_back();
  EXPECT_THAT(Vocabulary::parse(text, std::nullopt, "f").error().message, HasSubstr("cut off"));
  EXPECT_THAT(Vocabulary::parse("", std::nullopt, "f").error().message, HasSubstr("empty"));
}

TEST(Vocabulary, RefusesUnsoundSpecialTokens) {
  EXPECT_EQ(error_of(required_names()), "accepted");
  auto names = required_names();
  names[512] = "x";
  EXPECT_THAT(error_of(names), AllOf(HasSubstr("512"), HasSubstr("256..511")));
  names = required_names();
  names[300] = "<|open|>";
  EXPECT_THAT(error_of(names), AllOf(HasSubstr("259"), HasSubstr("300"), HasSubstr("<|open|>")));
  names = required_names();
  names[300] = "";
  EXPECT_THAT(error_of(names), HasSubstr("300"));
  names = required_names();
  names.erase(260);  // as in the configuration of an older model
  EXPECT_THAT(error_of(names), HasSubstr("<|close|>"));
}

TEST(Vocabulary, RefusesUnsoundConfigurations) {
  const auto error = [](std::string_view json) {
    const auto names = Vocabulary::parse_special_names(json, "tokenizer_config.json");
    return names ? "accepted" : names.error().message;
  };
  EXPECT_EQ(error(R"({"added_tokens_decoder": {"7": {"content": "x"}}})"), "accepted");
  for (const char* bad :
       {"", "{", "[]", "{}", R"({"added_tokens_decoder": []})",
        R"({"added_tokens_decoder": {"x7": {"content": "x"}}})",
        R"({"added_tokens_decoder": {"-7": {"content": "x"}}})",
        R"({"added_tokens_decoder": {"7": {"content": 3}}})",
        R"({"added_tokens_decoder": {"7": {}}})", R"({"added_tokens_decoder": {"7": "x"}})",
        R"({"added_tokens_decoder": {"7": {"content": "x"}, "07": {"content": "y"}}})"}) {
    EXPECT_THAT(error(bad), HasSubstr("tokenizer_config.json")) << bad;
  }
}

TEST(Vocabulary, FindsTheFirstSpecialToken) {
  auto names = required_names();
  names[300] = "<|open|>>";
  const Vocabulary vocabulary = Vocabulary::parse(join(byte_lines()), names, "f").value();
  EXPECT_FALSE(vocabulary.find_special("a < b [EOS <|open| <|OPEN|>"));
  const auto found = vocabulary.find_special("<<|sep|><|open|>");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->offset, 1u);
  EXPECT_EQ(found->bytes, 7u);
  EXPECT_EQ(found->id, 261);
  EXPECT_EQ(vocabulary.find_special("<|open|>>")->id, 300);
}

}  // namespace
}  // namespace k3::tokenizer
