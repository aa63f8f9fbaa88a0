// Every message and every field through the wire form, against its text written by hand.
#include "common/ipc/codec.h"

#include <capnp/serialize.h>
#include <gmock/gmock.h>
#include <kj/string.h>

#include <cstring>
#include <set>
#include <variant>

#include "envelope.capnp.h"
#include "tests/unit/common/ipc/samples.h"

namespace k3::ipc::test {
namespace {

// What Cap'n Proto's own reflection prints for a frame.
std::string printed(const std::vector<std::byte>& frame) {
  auto words = kj::heapArray<capnp::word>(frame.size() / sizeof(capnp::word));
  std::memcpy(words.begin(), frame.data(), frame.size());
  capnp::FlatArrayMessageReader reader(words);
  const kj::String text = kj::str(reader.getRoot<proto::Envelope>());
  return {text.begin(), text.size()};
}

TEST(Codec, SamplesCoverEveryMessage) {
  std::set<std::size_t> seen;
  for (const Sample& sample : samples()) seen.insert(sample.message.index());
  EXPECT_EQ(seen.size(), std::variant_size_v<Message>);
}

TEST(Codec, EncodesEveryField) {
  for (const Sample& sample : samples()) {
    const auto frame = encode(sample_header(), sample.message);
    ASSERT_TRUE(frame) << sample.text;
    EXPECT_EQ(printed(*frame),
              "(protocolMajor = 1, protocolMinor = 2, sender = \"k3-test\", incarnation = 1, "
              "sequence = 2, inReplyTo = 3, traceId = 4, monotonicNs = 5, body = (" +
                  sample.text + "))");
  }
}

// Encoding is complete (above), so equal bytes after a round trip mean that decoding is too.
TEST(Codec, DecodesEveryField) {
  for (const Sample& sample : samples()) {
    const auto frame = encode(sample_header(), sample.message);
    ASSERT_TRUE(frame) << sample.text;
    const Result<Envelope> envelope = decode(*frame);
    ASSERT_TRUE(envelope) << sample.text << ": " << envelope.error().message;
    EXPECT_EQ(envelope->body.index(), sample.message.index()) << sample.text;
    const auto again = encode(envelope->header, envelope->body);
    ASSERT_TRUE(again) << sample.text;
    EXPECT_TRUE(*again == *frame) << printed(*again) << "\nexpected\n" << printed(*frame);
  }
}

TEST(Codec, TextKeepsEmbeddedNulsAndInvalidUtf8) {
  const std::string odd("a\0b\xff\xc0\0", 6);
  const auto frame = encode({odd, 1, 1, 0, 0, 0}, EncodeChat{odd, false});
  ASSERT_TRUE(frame);
  const Result<Envelope> envelope = decode(*frame);
  ASSERT_TRUE(envelope) << envelope.error().message;
  EXPECT_EQ(envelope->header.sender, odd);
  EXPECT_EQ(std::get<EncodeChat>(envelope->body).user_text, odd);
}

TEST(Codec, EmptyMessagesAndListsPass) {
  for (const Message& message :
       {Message{Stats{}}, Message{Arrived{}}, Message{Encode{}}, Message{Rows{}},
        Message{Generate{}}, Message{UnitReady{}}, Message{Decoded{}}, Message{Logits{}}}) {
    const auto frame = encode({}, message);
    ASSERT_TRUE(frame);
    const Result<Envelope> envelope = decode(*frame);
    ASSERT_TRUE(envelope) << envelope.error().message;
    EXPECT_EQ(envelope->body.index(), message.index());
  }
}

TEST(Codec, ErrorCodesOfANewerPeerKeepTheirMessage) {
  const auto frame = encode({}, ErrorReply{{static_cast<ErrorCode>(12345), "new trouble"}});
  ASSERT_TRUE(frame);
  const Result<Envelope> envelope = decode(*frame);
  ASSERT_TRUE(envelope);
  const Error& error = std::get<ErrorReply>(envelope->body).error;
  EXPECT_EQ(error.code, ErrorCode::kFailed);
  EXPECT_EQ(error.message, "new trouble");
}

TEST(Codec, AMessageLargerThanAFrameIsAnError) {
  const auto frame = encode({}, EncodeChat{std::string(kMaxFrameBytes, 'x'), false});
  ASSERT_FALSE(frame);
  EXPECT_EQ(frame.error().code, ErrorCode::kFailed);
  EXPECT_THAT(frame.error().message, testing::HasSubstr("268435456"));
}

TEST(Codec, ATextLargerThanCapnProtoHoldsIsAnError) {
  const auto frame = encode({}, EncodeChat{std::string(std::size_t{1} << 29, 'x'), false});
  ASSERT_FALSE(frame);
  EXPECT_EQ(frame.error().code, ErrorCode::kFailed);
}

}  // namespace
}  // namespace k3::ipc::test
