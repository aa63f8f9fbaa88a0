#include "services/tokenizer/utf8.h"

#include <gtest/gtest.h>

#include "services/tokenizer/base64.h"

namespace k3::tokenizer {
namespace {

using Kind = Utf8Character::Kind;

TEST(Utf8, ReadsCharactersOfEveryLength) {
  const auto expect = [](std::string_view text, char32_t code_point) {
    const Utf8Character character = read_utf8(text);
    EXPECT_EQ(character.kind, Kind::kValid);
    EXPECT_EQ(character.bytes, text.size());
    EXPECT_EQ(character.code_point, code_point);
  };
  expect(std::string_view("\0", 1), 0);
  expect("\x7F", 0x7F);
  expect("\xC2\x80", 0x80);
  expect("\xDF\xBF", 0x7FF);
  expect("\xE0\xA0\x80", 0x800);
  expect("\xEF\xBF\xBF", 0xFFFF);
  expect("\xF0\x90\x80\x80", 0x10000);
  expect("\xF4\x8F\xBF\xBF", 0x10FFFF);
}

TEST(Utf8, ReplacesMaximalSubparts) {
  const std::string r(kReplacement);
  EXPECT_EQ(replace_malformed("plain \u00E9\u4F60\U0001F600"), "plain \u00E9\u4F60\U0001F600");
  EXPECT_EQ(replace_malformed("\x80"), r);
  EXPECT_EQ(replace_malformed("\xC0\xAF"), r + r);                  // overlong
  EXPECT_EQ(replace_malformed("\xED\xA0\x80"), r + r + r);          // surrogate
  EXPECT_EQ(replace_malformed("\xF4\x90\x80\x80"), r + r + r + r);  // above U+10FFFF
  EXPECT_EQ(replace_malformed("\xE4\xBDz"), r + "z");
  EXPECT_EQ(replace_malformed("\xF0\x9F\xE4\xBD\xA0"), r + "\u4F60");
  EXPECT_EQ(replace_malformed("a\xF0\x9F\x98"), "a" + r);
  EXPECT_EQ(replace_malformed("\xFF\xFE"), r + r);
}

TEST(Utf8, TellsUnfinishedFromMalformed) {
  EXPECT_EQ(read_utf8("\xF0\x9F\x98").kind, Kind::kIncomplete);
  EXPECT_EQ(read_utf8("\xF0\x9F\x98").bytes, 3u);
  EXPECT_EQ(read_utf8("\xE4").kind, Kind::kIncomplete);
  EXPECT_EQ(read_utf8("\xED\xA0").kind, Kind::kInvalid);
  EXPECT_EQ(read_utf8("\xF5").kind, Kind::kInvalid);
}

TEST(Base64, DecodesAndRefuses) {
  // The examples of RFC 4648.
  EXPECT_EQ(decode_base64(""), "");
  EXPECT_EQ(decode_base64("Zg=="), "f");
  EXPECT_EQ(decode_base64("Zm8="), "fo");
  EXPECT_EQ(decode_base64("Zm9v"), "foo");
  EXPECT_EQ(decode_base64("Zm9vYmFy"), "foobar");
  EXPECT_EQ(decode_base64("+/+/"), "\xFB\xFF\xBF");
  for (const char* bad :
       {"Zg", "Zg=", "Zh==", "Zm9=", "Z===", "====", "Zm9v=", "Zm_v", "Zg==Zg==", "Zm9v\r\n\n\n"}) {
    EXPECT_EQ(decode_base64(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace k3::tokenizer
