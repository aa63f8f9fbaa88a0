// Encoding, decoding and chat segments against the goldens of the released tokenizer.
#include <gtest/gtest.h>

#include <memory>

#include "services/tokenizer/base64.h"
#include "services/tokenizer/chat.h"
#include "services/tokenizer/decoder.h"
#include "services/tokenizer/encoder.h"
#include "tests/unit/services/tokenizer/reference_tokenizer.h"
#include "tests/unit/services/tokenizer/sha256.h"

namespace k3::tokenizer {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

std::string text_of(const json& test_case) {
  if (test_case.contains("text_b64")) {
    return decode_base64(test_case.at("text_b64").get<std::string>()).value();
  }
  std::string text;
  for (const json& part : test_case.at("parts")) {
    for (int i = 0; i < part.at(1).get<int>(); ++i) text += part.at(0).get<std::string>();
  }
  EXPECT_EQ(test::sha256(text), test_case.at("text_sha256").get<std::string>());
  return text;
}

std::string hash_of(const Ids& ids) {
  std::string bytes;
  for (const std::int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(id >> shift);
  }
  return test::sha256(bytes);
}

Ids encode(Encoder& encoder, std::string_view text, bool allow_special) {
  Ids ids;
  encoder.encode(text, allow_special, ids);
  return ids;
}

// Decodes one id a call, as text is streamed; every call must return whole characters.
std::string decode_singly(const Vocabulary& vocabulary, const Ids& ids) {
  std::string text;
  std::string pending;
  for (const std::int32_t id : ids) {
    const DecodedText decoded = decode_ids(vocabulary, {&id, 1}, pending, false).value();
    EXPECT_LE(decoded.pending.size(), kMaxPendingBytes);
    text += decoded.text;
    pending = decoded.pending;
  }
  return text + decode_ids(vocabulary, {}, pending, true).value().text;
}

TEST(Golden, EncodesAll) {
  K3_REFERENCE_OR_SKIP(dir);
  const Vocabulary vocabulary = test::reference_vocabulary(dir);
  ASSERT_EQ(vocabulary.size(), 163840);
  Encoder encoder(vocabulary);
  const json cases = test::read_json(dir / "tokenizer" / "golden.json").at("encode");
  ASSERT_EQ(cases.size(), 476u);
  for (const json& test_case : cases) {
    SCOPED_TRACE(test_case.at("group").get<std::string>() + " " +
                 test_case.at("name").get<std::string>());
    const Ids ids = encode(encoder, text_of(test_case), test_case.at("allow_special").get<bool>());
    if (test_case.contains("ids")) {
      EXPECT_EQ(ids, test_case.at("ids").get<Ids>());
    }
    EXPECT_EQ(ids.size(), test_case.at("n_ids").get<std::size_t>());
    EXPECT_EQ(hash_of(ids), test_case.at("ids_sha256_u32le").get<std::string>());
  }
}

TEST(Golden, DecodesWhatItEncodes) {
  K3_REFERENCE_OR_SKIP(dir);
  const Vocabulary vocabulary = test::reference_vocabulary(dir);
  Encoder encoder(vocabulary);
  const json cases = test::read_json(dir / "tokenizer" / "golden.json").at("encode");
  for (const json& test_case : cases) {
    SCOPED_TRACE(test_case.at("name").get<std::string>());
    const std::string text = text_of(test_case);
    const Ids ids = encode(encoder, text, test_case.at("allow_special").get<bool>());
    EXPECT_TRUE(decode_ids(vocabulary, ids, "", true).value().text == text);
    EXPECT_TRUE(decode_singly(vocabulary, ids) == text);
  }
}

TEST(Golden, DecodesAll) {
  K3_REFERENCE_OR_SKIP(dir);
  const Vocabulary vocabulary = test::reference_vocabulary(dir);
  const json cases = test::read_json(dir / "tokenizer" / "golden.json").at("decode");
  ASSERT_EQ(cases.size(), 32u);
  for (const json& test_case : cases) {
    SCOPED_TRACE(test_case.at("name").get<std::string>());
    const Ids ids = test_case.at("ids").get<Ids>();
    const std::string expected = test_case.at("text_replace").get<std::string>();
    EXPECT_EQ(decode_ids(vocabulary, ids, "", true).value().text, expected);
    EXPECT_EQ(decode_singly(vocabulary, ids), expected);
    std::string bytes;
    for (const std::int32_t id : ids) bytes += vocabulary.bytes(id);
    EXPECT_EQ(bytes, decode_base64(test_case.at("bytes_b64").get<std::string>()).value());
  }
}

TEST(Golden, EncodesSegmentsOfConversations) {
  K3_REFERENCE_OR_SKIP(dir);
  const Vocabulary vocabulary = test::reference_vocabulary(dir);
  Encoder encoder(vocabulary);
  const json cases = test::read_json(dir / "tokenizer" / "chat_golden.json").at("cases");
  ASSERT_EQ(cases.size(), 81u);
  for (const json& test_case : cases) {
    SCOPED_TRACE(test_case.at("name").get<std::string>());
    Ids ids;
    for (const json& segment : test_case.at("segments")) {
      encoder.encode(segment.at(0).get<std::string>(), segment.at(1).get<bool>(), ids);
    }
    EXPECT_EQ(ids, test_case.at("ids").get<Ids>());
  }
}

// Whether render_user_turn can express a conversation's input.
bool is_single_user_turn(const json& input) {
  const json& messages = input.at("messages");
  if (messages.size() != 1 || messages[0].size() != 2) return false;
  if (messages[0].value("role", "") != "user" || !messages[0].at("content").is_string()) {
    return false;
  }
  for (const auto& [key, value] : input.items()) {
    if (key != "messages" && key != "thinking") return false;
  }
  return true;
}

TEST(Golden, RendersSingleUserTurns) {
  K3_REFERENCE_OR_SKIP(dir);
  int rendered = 0;
  const json cases = test::read_json(dir / "tokenizer" / "chat_golden.json").at("cases");
  for (const json& test_case : cases) {
    const json& input = test_case.at("input");
    if (!is_single_user_turn(input)) continue;
    SCOPED_TRACE(test_case.at("name").get<std::string>());
    json segments = json::array();
    for (const ipc::Segment& segment :
         render_user_turn(input.at("messages")[0].at("content").get<std::string>(),
                          input.value("thinking", true))) {
      if (!segment.text.empty()) segments.push_back({segment.text, segment.allow_special});
    }
    EXPECT_EQ(segments, test_case.at("segments"));
    ++rendered;
  }
  EXPECT_GE(rendered, 3);
}

// The names in vocabulary.cpp against the listed ones.
TEST(Golden, KnowsTheReleasedSpecialTokens) {
  K3_REFERENCE_OR_SKIP(dir);
  const Vocabulary listed = test::reference_vocabulary(dir);
  const std::string ranks = test::read_all(dir / "tokenizer" / "tiktoken.model");
  const Vocabulary own = Vocabulary::parse(ranks, std::nullopt, "tiktoken.model").value();
  ASSERT_EQ(own.size(), listed.size());
  for (std::int32_t id = own.ranks(); id < own.size(); ++id) {
    EXPECT_EQ(own.bytes(id), listed.bytes(id)) << id;
  }
  EXPECT_EQ(own.stop_ids(), (Ids{163586, 163585}));
}

}  // namespace
}  // namespace k3::tokenizer
