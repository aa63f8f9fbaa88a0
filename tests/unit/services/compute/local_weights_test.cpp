// LocalTrunk and LocalExperts: the logits of the reference, from shards and packed files; damage.
#include "tests/unit/services/compute/local_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "tests/unit/services/compute/golden.h"
#include "tests/unit/support/reference_data.h"
#include "tests/unit/support/temp_dir.h"
#include "tests/unit/support/tiny_checkpoint.h"

namespace k3::compute::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kRows = 7;

std::vector<Row> rows_of(std::span<const std::int32_t> ids, std::uint32_t first, Session& session) {
  std::vector<Row> rows;
  for (std::uint32_t i = first; i < std::min<std::size_t>(first + kRows, ids.size()); ++i) {
    rows.push_back({.id = ids[i], .session = &session, .position = i, .logits_wanted = true});
  }
  return rows;
}

// Logits of every position, in passes of kRows rows.
std::vector<float> all_logits(LocalModel& local, std::span<const std::int32_t> ids) {
  Session session = local.model->new_session();
  std::vector<float> logits;
  while (session.length() < ids.size()) {
    const auto got = local.model->forward(rows_of(ids, session.length(), session), true);
    EXPECT_TRUE(got) << got.error().message;
    if (!got) return {};
    logits.insert(logits.end(), got->begin(), got->end());
  }
  return logits;
}

TEST(LocalWeights, GiveTheGoldenFromShardsAndPacked) {
  K3_REFERENCE_OR_SKIP(reference);
  const auto directory = reference / "tiny_checkpoint";
  const auto golden = read_json(directory / "expected.json");
  auto ids = golden.at("prompt_ids").get<std::vector<std::int32_t>>();
  const auto generated = golden.at("generated_ids").get<std::vector<std::int32_t>>();
  ids.insert(ids.end(), generated.begin(), generated.end() - 1);

  LocalModel shards(directory, 1e-5f, kRows);
  const std::vector<float> logits = all_logits(shards, ids);
  const auto expected = read_floats(directory / "expected_logits.f32");
  expect_near(logits, std::span(expected).first(ids.size() * 256), 2e-5f, 0.0f);

  const k3::test::TempDir temp;
  ASSERT_TRUE(write_packed_trunk(shards.checkpoint, temp.path(), 50'000, PackAs::kCoded,
                                 [](auto, auto) {}));
  LocalModel packed(directory, 1e-5f, kRows, temp.path());
  EXPECT_EQ(all_logits(packed, ids), logits);
}

// The bytes [offset, offset + 1) of a file, inverted; again: as they were.
void invert_byte(const std::filesystem::path& path, std::uint64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(offset));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(~byte));
  ASSERT_TRUE(file.flush());
}

TEST(LocalWeights, DamagedExpertIsNamedAndTheNextPassIsSound) {
  const k3::test::TempDir temp;
  k3::test::write_tiny_checkpoint(k3::test::TinyOptions{}, temp.path());
  const std::vector<std::int32_t> ids = {3, 7, 11, 5, 9, 60, 41, 8, 2, 80, 17, 33, 54};
  LocalModel local(temp.path(), 1e-6f, kRows);
  const std::vector<float> logits = all_logits(local, ids);

  const auto damage = [&] {
    for (int expert = 0; expert < local.config.experts; ++expert) {
      const TensorPlace part = local.checkpoint.expert(2, expert).front();
      invert_byte(local.checkpoint.shards()[part.shard].path, part.offset);
    }
  };
  damage();
  Session session = local.model->new_session();
  const auto failed = local.model->forward(rows_of(ids, 0, session), true);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kWeights);
  EXPECT_THAT(failed.error().message, AllOf(HasSubstr("layer 2 expert"), HasSubstr("checksum")));

  damage();
  EXPECT_EQ(all_logits(local, ids), logits);
}

TEST(LocalWeights, TokenOutsideTheVocabularyIsRefused) {
  const k3::test::TempDir temp;
  k3::test::write_tiny_checkpoint(k3::test::TinyOptions{}, temp.path());
  LocalModel local(temp.path(), 1e-6f, kRows);
  const std::int32_t ids[] = {3, 96};
  const auto rows = local.trunk->embedding(ids);
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code, ErrorCode::kUsage);
  EXPECT_THAT(rows.error().message, HasSubstr("token id 96"));
}

}  // namespace
}  // namespace k3::compute::test
