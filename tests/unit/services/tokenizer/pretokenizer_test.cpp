#include "services/tokenizer/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/services/tokenizer/reference_tokenizer.h"

namespace k3::tokenizer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class PretokenizerTest : public testing::Test {
 protected:
  std::vector<std::string> split(std::string_view text) {
    const auto& pieces = pretokenizer_.split(text);
    return {pieces.begin(), pieces.end()};
  }

  CharacterClasses classes_;
  Pretokenizer pretokenizer_{classes_};
};

TEST_F(PretokenizerTest, KnowsCharacterClasses) {
  EXPECT_EQ(classes_['A'], kUpper | kLetter);
  EXPECT_EQ(classes_['a'], kLower | kLetter);
  EXPECT_EQ(classes_['7'], kNumber);
  EXPECT_EQ(classes_['!'], 0);
  EXPECT_EQ(classes_['\n'], kSpace | kNewline | kBlank);
  EXPECT_EQ(classes_[0x1C], kBlank);
  EXPECT_EQ(classes_[0x200B], 0);                          // zero width space
  EXPECT_EQ(classes_[0x0301], kUpper | kLower);            // combining acute
  EXPECT_EQ(classes_[0x01C5], kUpper | kLetter);           // titlecase
  EXPECT_EQ(classes_[0x4F60], kHan | kLetter);             // ideograph
  EXPECT_EQ(classes_[0x2E80], kHan);                       // radical, a symbol
  EXPECT_EQ(classes_[0x3007], kHan | kNumber);             // ideographic zero
  EXPECT_EQ(classes_[0x3006], kUpper | kLower | kLetter);  // not of script Han
  EXPECT_EQ(classes_[0x1C89], kUpper | kLetter);           // new in Unicode 16.0
  EXPECT_EQ(classes_[0x10FFFF], 0);
}

TEST_F(PretokenizerTest, SplitsWords) {
  EXPECT_THAT(split(""), IsEmpty());
  EXPECT_THAT(split("helloWorld HELLO ABCdef"), ElementsAre("hello", "World", " HELLO", " ABCdef"));
  EXPECT_THAT(split("(x\tif"), ElementsAre("(x", "\tif"));
  EXPECT_THAT(split("a\u4F60\u597Db"), ElementsAre("a", "\u4F60\u597D", "b"));
  EXPECT_THAT(split("!\u2E80"), ElementsAre("!\u2E80"));
  EXPECT_THAT(split("\u2E80a"), ElementsAre("\u2E80", "a"));
}

TEST_F(PretokenizerTest, GivesCapitalsBackToFindALowerCaseEnding) {
  // The mark is the last character that can end U*L+.
  EXPECT_THAT(split("A\u0301BC"), ElementsAre("A\u0301", "BC"));
  EXPECT_THAT(split("\u0301ABC"), ElementsAre("\u0301", "ABC"));
}

TEST_F(PretokenizerTest, AttachesContractions) {
  EXPECT_THAT(split("don't it's WE'LL"), ElementsAre("don't", " it's", " WE'LL"));
  EXPECT_THAT(split("it'\u017F"), ElementsAre("it'\u017F"));
  EXPECT_THAT(split("dogs' x"), ElementsAre("dogs", "'", " x"));
  EXPECT_THAT(split("it\u2019s"), ElementsAre("it", "\u2019s"));
  EXPECT_THAT(split("a'"), ElementsAre("a", "'"));
  EXPECT_THAT(split("a'l"), ElementsAre("a", "'l"));
}

TEST_F(PretokenizerTest, GroupsDigitsFromTheLeft) {
  EXPECT_THAT(split("1234567"), ElementsAre("123", "456", "7"));
  EXPECT_THAT(split("in 2026"), ElementsAre("in", " ", "202", "6"));
}

TEST_F(PretokenizerTest, SplitsSymbolsAndWhiteSpace) {
  EXPECT_THAT(split(" ==\r\n\nx"), ElementsAre(" ==\r\n\n", "x"));
  EXPECT_THAT(split("a    b"), ElementsAre("a", "   ", " b"));
  EXPECT_THAT(split("a  \n  b"), ElementsAre("a", "  \n", " ", " b"));
  EXPECT_THAT(split("a   "), ElementsAre("a", "   "));
  EXPECT_THAT(split("   1"), ElementsAre("  ", " ", "1"));
}

// The pattern itself, run by another engine (make_pretokenizer_cases.py).
TEST_F(PretokenizerTest, AgreesWithARegularExpressionEngine) {
  const auto cases =
      test::read_json(test::source_dir() / "tests/unit/services/tokenizer/pretokenizer_cases.json");
  ASSERT_EQ(cases.size(), 400u);
  for (const auto& test_case : cases) {
    const auto expected = test_case.get<std::vector<std::string>>();
    std::string text;
    for (const std::string& piece : expected) text += piece;
    EXPECT_EQ(split(text), expected) << test_case.dump();
  }
}

}  // namespace
}  // namespace k3::tokenizer
