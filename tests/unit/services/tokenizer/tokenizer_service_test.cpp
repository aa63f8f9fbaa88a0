// k3-tokenizer over real messages.
#include "services/tokenizer/tokenizer_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/services/tokenizer/reference_tokenizer.h"
#include "tests/unit/support/service_client.h"
#include "tests/unit/support/temp_dir.h"

namespace k3::tokenizer {
namespace {

using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

class TokenizerServiceTest : public testing::Test {
 protected:
  void start(const std::filesystem::path& model) {
    auto made = TokenizerService::create(loop_, {folder_.path() / "run", model});
    ASSERT_TRUE(made) << made.error().message;
    service_ = std::move(*made);
    client_ = std::make_unique<test::ServiceClient>(loop_, folder_.path() / "run", "tokenizer");
    ASSERT_TRUE(client_->wait_until_up());
  }

  void expect_refusal(const ipc::Message& request, const std::string& reason) {
    const auto reply = client_->ask<ipc::ErrorReply>(request);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->error.code, ErrorCode::kUsage);
    EXPECT_THAT(reply->error.message, HasSubstr(reason));
  }

  test::TempDir folder_;
  ipc::EventLoop loop_;
  std::unique_ptr<TokenizerService> service_;
  std::unique_ptr<test::ServiceClient> client_;
};

TEST_F(TokenizerServiceTest, DescribesItself) {
  start(test::demo_model());
  const auto description = client_->ask<ipc::TokenizerDescription>(ipc::DescribeTokenizer{});
  ASSERT_TRUE(description);
  EXPECT_TRUE(description->has_vocabulary);
  EXPECT_EQ(description->vocab, 4096u);
  EXPECT_EQ(description->stop_ids, (Ids{3842, 3841}));
}

TEST_F(TokenizerServiceTest, EncodesAndDecodesTheDemoConversations) {
  start(test::demo_model());
  std::size_t ids_decoded = 0;
  const auto cases = test::read_json(test::demo_model() / "expected.json").at("cases");
  ASSERT_EQ(cases.size(), 3u);
  for (const auto& test_case : cases) {
    const auto encoded = client_->ask<ipc::Encoded>(ipc::EncodeChat{
        test_case.at("question").get<std::string>(), test_case.at("thinking").get<bool>()});
    ASSERT_TRUE(encoded);
    EXPECT_EQ(encoded->ids, test_case.at("prompt_ids").get<Ids>());
    const Ids reply = test_case.at("generated_ids").get<Ids>();
    const auto decoded = client_->ask<ipc::Decoded>(ipc::Decode{reply, "", true});
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->text, test_case.at("text").get<std::string>());
    ids_decoded += reply.size();
  }
  EXPECT_EQ(client_->counter("requests"), 6u);
  EXPECT_EQ(client_->counter("refused"), 0u);
  EXPECT_EQ(client_->counter("ids_decoded"), ids_decoded);
}

TEST_F(TokenizerServiceTest, EncodesSegmentsOneByOne) {
  start(test::demo_model());
  const auto encoded = client_->ask<ipc::Encoded>(
      ipc::Encode{{{"<|open|>", true}, {"", false}, {"A", false}, {"\n", false}}});
  ASSERT_TRUE(encoded);
  EXPECT_EQ(encoded->ids, (Ids{3843, 'A', '\n'}));
  const auto ordinary = client_->ask<ipc::Encoded>(ipc::Encode{{{"<|open|>", false}}});
  ASSERT_TRUE(ordinary);
  EXPECT_THAT(ordinary->ids, testing::Each(testing::Lt(3840)));
}

TEST_F(TokenizerServiceTest, HoldsBackUnfinishedCharacters) {
  start(test::demo_model());
  const auto head = client_->ask<ipc::Decoded>(ipc::Decode{{'x', 0xE4, 0xBD}, "", false});
  ASSERT_TRUE(head);
  EXPECT_EQ(head->text, "x");
  EXPECT_EQ(head->pending, "\xE4\xBD");
  const auto tail = client_->ask<ipc::Decoded>(ipc::Decode{{0xA0}, head->pending, false});
  ASSERT_TRUE(tail);
  EXPECT_EQ(tail->text, "\u4F60");
  const auto flushed = client_->ask<ipc::Decoded>(ipc::Decode{{}, head->pending, true});
  ASSERT_TRUE(flushed);
  EXPECT_EQ(flushed->text, "\uFFFD");
}

TEST_F(TokenizerServiceTest, RefusesAndGoesOn) {
  start(test::demo_model());
  expect_refusal(ipc::Decode{{65, 4096}, "", true}, "4096");
  expect_refusal(ipc::Decode{{-1}, "", true}, "-1");
  expect_refusal(ipc::Decode{{}, "four", true}, "4 pending bytes");
  expect_refusal(ipc::Encode{{{std::string(kMaxTextBytes + 1, 'a'), false}}}, "16777217");
  expect_refusal(ipc::DescribeTrunk{}, "k3-tokenizer");
  const auto encoded = client_->ask<ipc::Encoded>(ipc::Encode{{{"A", false}}});
  ASSERT_TRUE(encoded);
  EXPECT_EQ(encoded->ids, Ids{'A'});
  EXPECT_EQ(client_->counter("refused"), 5u);
}

TEST_F(TokenizerServiceTest, ServesACheckpointWithoutVocabulary) {
  std::filesystem::create_directory(folder_.path() / "model");
  start(folder_.path() / "model");
  const auto description = client_->ask<ipc::TokenizerDescription>(ipc::DescribeTokenizer{});
  ASSERT_TRUE(description);
  EXPECT_FALSE(description->has_vocabulary);
  expect_refusal(ipc::Encode{{{"A", false}}}, "the checkpoint has no vocabulary");
  expect_refusal(ipc::EncodeChat{"A", true}, "the checkpoint has no vocabulary");
  expect_refusal(ipc::Decode{{65}, "", true}, "the checkpoint has no vocabulary");
}

TEST_F(TokenizerServiceTest, RefusesAMissingModel) {
  const auto made =
      TokenizerService::create(loop_, {folder_.path() / "run", folder_.path() / "nowhere"});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kUsage);
  EXPECT_THAT(made.error().message, HasSubstr("nowhere"));
}

}  // namespace
}  // namespace k3::tokenizer
