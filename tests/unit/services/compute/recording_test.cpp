// Recordings: what is written is read again, and every damaged or shortened frame is named.
#include "services/compute/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "services/compute/recorder.h"
#include "tests/unit/services/compute/local_weights.h"
#include "tests/unit/support/temp_dir.h"
#include "tests/unit/support/tiny_checkpoint.h"

namespace k3::compute::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void replace(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// All frames, or the first error.
Result<std::vector<RecordedFrame>> read_all(const std::filesystem::path& path) {
  K3_ASSIGN(RecordingReader reader, RecordingReader::open(path));
  std::vector<RecordedFrame> frames;
  do {
    K3_ASSIGN(frames.emplace_back(), reader.next());
  } while (!std::holds_alternative<RecordedEnd>(frames.back()));
  return frames;
}

class Recording : public testing::Test {
 protected:
  Recording() { k3::test::write_tiny_checkpoint(k3::test::TinyOptions{}, temp_.path() / "model"); }

  // Records a pass of three rows, of which the last wants logits.
  void record(std::uint64_t max_bytes) {
    LocalModel local(temp_.path() / "model", 1e-6f, 3);
    auto recorder = Recorder::create(path(), max_bytes,
                                     {.fingerprint = "f", .config = "{}", .isa = "reference"}, 96)
                        .value();
    local.model->observe(recorder.get());
    Session session = local.model->new_session();
    const Row rows[] = {{3, &session, 0, false}, {7, &session, 1, false}, {11, &session, 2, true}};
    const auto got = local.model->forward(rows, false);
    ASSERT_TRUE(got) << got.error().message;
    logits_.assign(got->begin(), got->end());
  }

  std::filesystem::path path() const { return temp_.path() / "recording"; }

  k3::test::TempDir temp_;
  std::vector<float> logits_;
};

TEST_F(Recording, HoldsRowsLayersRoutesAndLogits) {
  record(1'000'000);
  const auto read = read_all(path());
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), 1u + 1 + 4 + 1 + 1);
  EXPECT_EQ(std::get<RecordedStart>(read->at(0)).fingerprint, "f");
  const auto& rows = std::get<RecordedPass>(read->at(1)).rows;
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[2].id, 11);
  EXPECT_EQ(rows[2].position, 2u);
  EXPECT_FALSE(rows[1].logits_wanted);
  EXPECT_TRUE(rows[2].logits_wanted);
  for (std::uint32_t layer = 0; layer < 4; ++layer) {
    const auto& frame = std::get<RecordedLayer>(read->at(2 + layer));
    EXPECT_EQ(frame.layer, layer);
    EXPECT_EQ(frame.activations.size(), 3u * 64);
    EXPECT_EQ(frame.experts.size(), layer == 0 ? 0u : 3u * 3);
    EXPECT_EQ(frame.weights.size(), frame.experts.size());
  }
  const auto& done = std::get<RecordedDone>(read->at(6));
  EXPECT_EQ(done.logits, bits_of(logits_));
  const auto best = std::max_element(logits_.begin(), logits_.end()) - logits_.begin();
  EXPECT_EQ(done.chosen, std::vector{static_cast<std::int32_t>(best)});
  EXPECT_FALSE(std::get<RecordedEnd>(read->at(7)).full);
}

TEST_F(Recording, EndsWithinItsBound) {
  record(4000);
  EXPECT_LE(std::filesystem::file_size(path()), 4000u);
  const auto read = read_all(path());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(std::get<RecordedEnd>(read->back()).full);
  EXPECT_EQ(logits_.size(), 96u);
}

TEST_F(Recording, AShorterFileIsAnErrorAtAnOffset) {
  record(2200);
  const std::string whole = contents(path());
  ASSERT_TRUE(read_all(path()));
  for (std::size_t bytes = 8; bytes < whole.size(); bytes += 13) {
    replace(path(), whole.substr(0, bytes));
    const auto read = read_all(path());
    ASSERT_FALSE(read) << bytes;
    EXPECT_EQ(read.error().code, ErrorCode::kUsage);
    EXPECT_THAT(read.error().message, AllOf(HasSubstr("frame "), HasSubstr("at byte ")));
  }
}

TEST_F(Recording, AFlippedBitIsAnError) {
  record(2200);
  const std::string whole = contents(path());
  for (std::size_t bit = 0; bit < whole.size() * 8; bit += 61) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    replace(path(), damaged);
    ASSERT_FALSE(read_all(path())) << "bit " << bit;
  }
}

TEST_F(Recording, DamagedFrameIsNamedWithItsOffset) {
  record(1'000'000);
  std::string damaged = contents(path());
  std::uint64_t start_bytes = 0;  // of the first frame's message, behind the file's first 8 bytes
  std::memcpy(&start_bytes, damaged.data() + 8, 8);
  const std::uint64_t second = 8 + 16 + start_bytes;
  damaged[second + 16 + 24] ^= 1;
  replace(path(), damaged);
  const auto read = read_all(path());
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message,
              AllOf(HasSubstr(fmt::format("frame 1 at byte {}", second)), HasSubstr("checksum")));
}

TEST_F(Recording, BytesBehindTheEndAreAnError) {
  record(1'000'000);
  replace(path(), contents(path()) + "12345678");
  const auto read = read_all(path());
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, HasSubstr("8 bytes after the end"));
}

}  // namespace
}  // namespace k3::compute::test
