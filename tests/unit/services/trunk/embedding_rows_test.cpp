// Requests for embedding rows against a reader played by the test.
#include "services/trunk/embedding_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace k3::trunk {
namespace {

using testing::HasSubstr;

// A vocabulary of 10 rows of 3 BF16 values, 6 bytes a row, at offset 100 of file 2.
EmbeddingRows rows() {
  return EmbeddingRows::create(TensorPlace{0, DType::kBf16, {10, 3}, 100, 60}, 2, {}).value();
}

// Fills a row with its file offset.
void read(const ReadJob& job) {
  const std::span<std::byte> into = job.extents.front().into;
  std::fill(into.begin(), into.end(), static_cast<std::byte>(job.extents.front().offset));
}

TEST(EmbeddingRows, AnswersInTheOrderAskedWhateverTheOrderOfReads) {
  EmbeddingRows table = rows();
  const std::vector<std::int32_t> ids = {9, 0, 9};
  const std::vector<ReadJob> jobs = table.begin(7, 33, ids).value();
  ASSERT_EQ(jobs.size(), 3u);
  for (const ReadJob& job : jobs) {
    EXPECT_EQ(job.extents.front().file, 2u);
    EXPECT_EQ(job.extents.front().into.size(), 6u);
    read(job);
  }
  EXPECT_FALSE(table.read_done({jobs[2].id, {}, 6}));
  EXPECT_FALSE(table.read_done({jobs[0].id, {}, 6}));
  const auto answer = table.read_done({jobs[1].id, {}, 6});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->client, 7u);
  EXPECT_EQ(answer->in_reply_to, 33u);
  const auto& body = std::get<ipc::Rows>(answer->body);
  EXPECT_EQ(body.encoding, 1);  // raw BF16
  EXPECT_EQ(body.row_bytes, 6u);
  std::vector<std::byte> expected;
  for (const int offset : {154, 100, 154}) expected.insert(expected.end(), 6, std::byte(offset));
  EXPECT_EQ(body.data, expected);
}

TEST(EmbeddingRows, KeepsRequestsApart) {
  EmbeddingRows table = rows();
  const std::vector<std::int32_t> one = {1};
  const std::vector<ReadJob> first = table.begin(1, 10, one).value();
  const std::vector<ReadJob> second = table.begin(2, 20, one).value();
  EXPECT_GE(first[0].id, EmbeddingRows::kFirstJobId);
  EXPECT_EQ(table.read_done({second[0].id, {}, 6})->client, 2u);
  EXPECT_EQ(table.read_done({first[0].id, {}, 6})->client, 1u);
}

TEST(EmbeddingRows, AFailureNamesTheFirstTokenThatFailed) {
  EmbeddingRows table = rows();
  const std::vector<std::int32_t> ids = {4, 5, 6};
  const std::vector<ReadJob> jobs = table.begin(1, 1, ids).value();
  const auto failure = [&](int i) -> Status {
    return fail(ErrorCode::kWeights, "{}: no medium", jobs[i].label);
  };
  EXPECT_FALSE(table.read_done({jobs[2].id, failure(2), 0}));
  EXPECT_FALSE(table.read_done({jobs[1].id, failure(1), 0}));
  const auto answer = table.read_done({jobs[0].id, {}, 6});
  ASSERT_TRUE(answer);
  const Error& error = std::get<ipc::ErrorReply>(answer->body).error;
  EXPECT_EQ(error.code, ErrorCode::kWeights);
  EXPECT_THAT(error.message, HasSubstr("token 5"));
}

TEST(EmbeddingRows, EachReadCarriesTheChecksumOfItsRow) {
  const TensorPlace place{0, DType::kBf16, {3, 3}, 100, 18};
  EmbeddingRows table = EmbeddingRows::create(place, 2, {70, 71, 72}).value();
  const std::vector<ReadJob> jobs = table.begin(1, 1, std::vector<std::int32_t>{2, 0}).value();
  EXPECT_EQ(jobs[0].checksum, 72u);
  EXPECT_EQ(jobs[1].checksum, 70u);
  const auto too_few = EmbeddingRows::create(place, 2, {70});
  ASSERT_FALSE(too_few);
  EXPECT_THAT(too_few.error().message, HasSubstr("3 rows, 1 checksums"));
}

TEST(EmbeddingRows, RefusesIdsOutsideTheVocabulary) {
  EmbeddingRows table = rows();
  for (const std::int32_t id : {-1, 10, 2147483647}) {
    const std::vector<std::int32_t> ids = {0, id};
    const auto jobs = table.begin(1, 1, ids);
    ASSERT_FALSE(jobs) << id;
    EXPECT_EQ(jobs.error().code, ErrorCode::kUsage);
    EXPECT_THAT(jobs.error().message, HasSubstr(fmt::format("token id {},", id)));
    EXPECT_THAT(jobs.error().message, HasSubstr("0..9"));
  }
}

TEST(EmbeddingRows, LimitsOneRequestAndAllOfThem) {
  EmbeddingRows table = rows();
  EXPECT_FALSE(table.begin(1, 1, {}));
  EXPECT_FALSE(table.begin(1, 1, std::vector<std::int32_t>(4097)));
  const auto largest = table.begin(1, 1, std::vector<std::int32_t>(4096));
  ASSERT_TRUE(largest);
  for (std::size_t i = 1; i < EmbeddingRows::kMaxOpenRequests; ++i) {
    ASSERT_TRUE(table.begin(1, 1, std::vector<std::int32_t>(1)));
  }
  EXPECT_FALSE(table.begin(1, 1, std::vector<std::int32_t>(1)));
  for (const ReadJob& job : *largest) table.read_done({job.id, {}, 6});
  EXPECT_TRUE(table.begin(1, 1, std::vector<std::int32_t>(1)));
}

TEST(EmbeddingRows, RefusesATableOfBytes) {
  const auto table = EmbeddingRows::create(TensorPlace{0, DType::kU8, {10, 3}, 0, 30}, 0, {});
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().code, ErrorCode::kWeights);
}

}  // namespace
}  // namespace k3::trunk
