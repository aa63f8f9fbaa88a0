// Frames that no honest peer sends: each is an error or a valid message, never a crash.
#include <gmock/gmock.h>

#include <cstring>
#include <random>
#include <variant>

#include "common/ipc/codec.h"
#include "tests/unit/common/ipc/samples.h"

namespace k3::ipc::test {
namespace {

using Frame = std::vector<std::byte>;

Frame frame_of(const Message& message) { return encode(sample_header(), message).value(); }

// Decodes a copy of exactly the frame's size, so that a sanitizer sees every byte read past it.
Result<Envelope> decode_copy(std::span<const std::byte> frame) {
  const std::vector<std::byte> copy(frame.begin(), frame.end());
  return decode(copy);
}

// An error has its code and a text; a message can be encoded again.
void expect_sound(const Result<Envelope>& envelope) {
  if (envelope) {
    EXPECT_TRUE(encode(envelope->header, envelope->body));
  } else {
    EXPECT_TRUE(envelope.error().code == ErrorCode::kFailed ||
                envelope.error().code == ErrorCode::kIncompatible);
    EXPECT_FALSE(envelope.error().message.empty());
  }
}

std::uint64_t word_at(const Frame& frame, std::size_t index) {
  std::uint64_t word = 0;
  std::memcpy(&word, frame.data() + index * 8, 8);
  return word;
}

void set_word(Frame& frame, std::size_t index, std::uint64_t word) {
  std::memcpy(frame.data() + index * 8, &word, 8);
}

// The only position where two frames of equal length differ; sets the 16 bits there.
void set_where_different(Frame& frame, const Frame& other, std::uint16_t value) {
  ASSERT_EQ(frame.size(), other.size());
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < frame.size(); ++i) {
    if (frame[i] != other[i]) places.push_back(i);
  }
  ASSERT_EQ(places.size(), 1u);
  std::memcpy(frame.data() + places[0], &value, 2);
}

TEST(CodecHostile, EveryTruncationIsAnError) {
  for (const Sample& sample : samples()) {
    const Frame frame = frame_of(sample.message);
    for (std::size_t length = 0; length < frame.size(); ++length) {
      const Result<Envelope> envelope = decode_copy(std::span(frame).first(length));
      ASSERT_FALSE(envelope) << sample.text << " cut to " << length;
      EXPECT_EQ(envelope.error().code, ErrorCode::kFailed);
    }
  }
}

TEST(CodecHostile, BytesAfterTheMessageAreAnError) {
  for (const Sample& sample : samples()) {
    Frame frame = frame_of(sample.message);
    frame.resize(frame.size() + 8);
    EXPECT_FALSE(decode_copy(frame)) << sample.text;
    frame.resize(frame.size() - 7);
    EXPECT_FALSE(decode_copy(frame)) << sample.text;
  }
}

TEST(CodecHostile, EverySingleBitFlipIsSound) {
  for (const Sample& sample : samples()) {
    Frame frame = frame_of(sample.message);
    for (std::size_t bit = 0; bit < frame.size() * 8; ++bit) {
      const auto mask = static_cast<std::byte>(1u << (bit % 8));
      frame[bit / 8] ^= mask;
      expect_sound(decode_copy(frame));
      frame[bit / 8] ^= mask;
    }
  }
}

TEST(CodecHostile, RandomWordsInsideAValidFrameAreSound) {
  std::mt19937_64 random(20240607);
  const std::vector<Sample> all = samples();
  for (int i = 0; i < 20000; ++i) {
    Frame frame = frame_of(all[random() % all.size()].message);
    const std::size_t words = frame.size() / 8;
    for (std::uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      // Small values make plausible pointers more often than 64 random bits do.
      const std::uint64_t low = random() % 64 - 16;
      const std::uint64_t high = random() % 256;
      set_word(
          frame, random() % words,
          random() % 4 == 0 ? random() : (low << 2 & 0xffffffffu) | (random() % 4) | high << 32);
    }
    expect_sound(decode_copy(frame));
  }
}

TEST(CodecHostile, RandomBytesAreSound) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    Frame frame(random() % 256);
    for (std::byte& byte : frame) byte = static_cast<std::byte>(random());
    // Half of them with a segment table that fits, so that something behind it is read.
    if (i % 2 == 0 && frame.size() >= 16) {
      frame.resize(frame.size() / 8 * 8);
      set_word(frame, 0, (frame.size() / 8 - 1) << 32);
    }
    expect_sound(decode_copy(frame));
  }
}

TEST(CodecHostile, UnalignedBuffersDecodeLikeAlignedOnes) {
  for (const Sample& sample : samples()) {
    const Frame frame = frame_of(sample.message);
    for (std::size_t shift = 1; shift < 8; ++shift) {
      std::vector<std::byte> buffer(frame.size() + 8);
      std::memcpy(buffer.data() + shift, frame.data(), frame.size());
      const auto envelope = decode(std::span(buffer).subspan(shift, frame.size()));
      ASSERT_TRUE(envelope) << sample.text << ": " << envelope.error().message;
      EXPECT_TRUE(encode(envelope->header, envelope->body).value() == frame) << sample.text;
    }
  }
}

TEST(CodecHostile, AnotherMajorVersionIsIncompatibleNamingBoth) {
  for (const Sample& sample : samples()) {
    Frame frame = frame_of(sample.message);
    frame[16] = std::byte{9};  // first data word of the root: protocolMajor
    const Result<Envelope> envelope = decode(frame);
    ASSERT_FALSE(envelope);
    EXPECT_EQ(envelope.error().code, ErrorCode::kIncompatible);
    EXPECT_THAT(envelope.error().message, testing::HasSubstr(version(9)));
    EXPECT_THAT(envelope.error().message, testing::HasSubstr(version(kProtocolMajor)));
    EXPECT_THAT(envelope.error().message, testing::HasSubstr("k3-test"));
  }
}

TEST(CodecHostile, ANewerMinorVersionIsAccepted) {
  Frame frame = frame_of(Cancel{6});
  frame[18] = std::byte{200};
  EXPECT_TRUE(decode(frame));
}

TEST(CodecHostile, AnUnknownMessageIsAnErrorNamingIt) {
  Frame frame = frame_of(Stop{});
  set_where_different(frame, frame_of(StatsRequest{}), 999);
  const Result<Envelope> envelope = decode(frame);
  ASSERT_FALSE(envelope);
  EXPECT_EQ(envelope.error().code, ErrorCode::kFailed);
  EXPECT_THAT(envelope.error().message, testing::HasSubstr("999"));
  EXPECT_EQ(sequence_of(frame), sample_header().sequence);
}

TEST(CodecHostile, AFrameWithoutAReadableEnvelopeHasNoSequence) {
  const Frame frame = frame_of(Cancel{6});
  EXPECT_EQ(sequence_of(frame), sample_header().sequence);
  EXPECT_EQ(sequence_of({}), std::nullopt);
  EXPECT_EQ(sequence_of(std::span(frame).first(frame.size() - 1)), std::nullopt);
  EXPECT_EQ(sequence_of(std::span(frame).first(frame.size() - 8)), std::nullopt);
  Frame longer = frame;
  longer.resize(frame.size() + 8);
  EXPECT_EQ(sequence_of(longer), std::nullopt);
  Frame other = frame;
  other[16] = std::byte{9};  // protocolMajor
  EXPECT_EQ(sequence_of(other), std::nullopt);
}

TEST(CodecHostile, AnUnknownEnumerantIsAnError) {
  Frame finished = frame_of(Finished{1, FinishReason::kCancelled, {}});
  set_where_different(finished, frame_of(Finished{1, FinishReason::kStop, {}}), 3);
  EXPECT_EQ(decode(finished).error().code, ErrorCode::kFailed);

  Frame generate = frame_of(Generate{1, {}, 1, {}, LogitsWanted::kAll, false});
  set_where_different(generate, frame_of(Generate{1, {}, 1, {}, LogitsWanted::kLast, false}), 3);
  EXPECT_EQ(decode(generate).error().code, ErrorCode::kFailed);

  Frame arrived = frame_of(Arrived{1, {{1, ExpertOrigin::kMiss, {}}}});
  set_where_different(arrived, frame_of(Arrived{1, {{1, ExpertOrigin::kPrefetched, {}}}}), 0xffff);
  EXPECT_EQ(decode(arrived).error().code, ErrorCode::kFailed);
}

TEST(CodecHostile, RowsThatAreNotWholeAreAnError) {
  const Frame frame = frame_of(Rows{1, 4, std::vector<std::byte>(6)});
  EXPECT_EQ(decode(frame).error().code, ErrorCode::kFailed);
  EXPECT_FALSE(decode(frame_of(Rows{1, 0, std::vector<std::byte>(6)})));
}

// A list of half a billion structs without content fits into a few words.
TEST(CodecHostile, AListOfEmptyElementsCannotAskForGigabytes) {
  Frame frame = frame_of(Stats{{{"name", 1}}});
  bool found = false;
  for (std::size_t i = 1; i < frame.size() / 8 && !found; ++i) {
    const std::uint64_t pointer = word_at(frame, i);
    found = (pointer & 3) == 1 && (pointer >> 32 & 7) == 7;
    if (!found) continue;
    const std::size_t tag = i + 1 + (static_cast<std::uint32_t>(pointer) >> 2);
    set_word(frame, i, (pointer & 0xffffffffu) | std::uint64_t{7} << 32);
    set_word(frame, tag, ((std::uint64_t{1} << 29) - 1) << 2);
  }
  ASSERT_TRUE(found);
  EXPECT_EQ(decode(frame).error().code, ErrorCode::kFailed);
}

TEST(CodecHostile, AFrameAboveTheLimitIsRefusedUnread) {
  // Address space only: reading it would fault.
  const std::span<const std::byte> huge(reinterpret_cast<const std::byte*>(8), kMaxFrameBytes + 8);
  const Result<Envelope> envelope = decode(huge);
  ASSERT_FALSE(envelope);
  EXPECT_THAT(envelope.error().message, testing::HasSubstr("268435464"));
}

}  // namespace
}  // namespace k3::ipc::test
