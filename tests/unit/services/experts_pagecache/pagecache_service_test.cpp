// k3-experts-pagecache over real messages and mapped files.
#include "services/experts_pagecache/pagecache_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "tests/unit/support/service_client.h"
#include "tests/unit/support/temp_dir.h"
#include "tests/unit/support/tiny_checkpoint.h"

namespace k3::pagecache {
namespace {

using test::ServiceClient;
using testing::AllOf;
using testing::HasSubstr;

// 12 experts of 3 matrices of 32 x 64 in layers 1, 2 and 3.
constexpr std::uint32_t kExperts = 12;
constexpr std::uint64_t kExpertBytes = 3 * (32 * 64 / 2 + 32 * 64 / 32);

class PageCacheServiceTest : public testing::Test {
 protected:
  void start(bool scattered, std::optional<int> layers = {}) {
    test::TinyOptions options;
    options.scattered = scattered;
    checkpoint_ = test::make_tiny_checkpoint(options);
    test::write_tiny_checkpoint(checkpoint_, model_);
    auto made = PageCacheService::create(loop_, {run_dir_, model_, layers, 3});
    ASSERT_TRUE(made) << made.error().message;
    service_ = std::move(*made);
    client_ = std::make_unique<ServiceClient>(loop_, run_dir_, "experts");
    ASSERT_TRUE(client_->wait_until_up());
  }

  // The bytes of one expert, from the tensors the checkpoint was written from.
  std::string expected(std::uint32_t layer, std::uint32_t expert) {
    std::string bytes;
    for (const char* part : {"w1.weight_packed", "w1.weight_scale", "w2.weight_packed",
                             "w2.weight_scale", "w3.weight_packed", "w3.weight_scale"}) {
      bytes += checkpoint_
                   .at(fmt::format("language_model.model.layers.{}.block_sparse_moe.experts.{}.{}",
                                   layer, expert, part))
                   .data;
    }
    return bytes;
  }

  void expect_batch(std::uint64_t batch, std::uint32_t layer, std::set<std::uint32_t> due) {
    while (!due.empty()) {
      const auto message = client_->next<ipc::Arrived>();
      ASSERT_TRUE(message);
      EXPECT_EQ(message->batch, batch);
      for (const ipc::ArrivedExpert& expert : message->experts) {
        EXPECT_EQ(due.erase(expert.expert), 1u);
        std::string bytes;
        for (const ipc::Ref& part : expert.parts) bytes += client_->bytes(part);
        EXPECT_TRUE(bytes == expected(layer, expert.expert)) << layer << " " << expert.expert;
      }
    }
  }

  test::TempDir folder_;
  const std::filesystem::path model_ = folder_.path() / "a model";
  const std::filesystem::path run_dir_ = folder_.path() / "run";
  test::TinyCheckpoint checkpoint_;
  ipc::EventLoop loop_;
  std::unique_ptr<PageCacheService> service_;
  std::unique_ptr<ServiceClient> client_;
};

TEST_F(PageCacheServiceTest, DeliversEveryExpertByteForByte) {
  for (const bool scattered : {false, true}) {
    start(scattered);
    std::uint64_t batch = 0;
    for (std::uint32_t layer = 1; layer < 4; ++layer) {
      client_->send(ipc::Fetch{++batch, layer, {11, 0, 5, 6, 1, 2, 3, 4, 7, 8, 9, 10}, 0});
      expect_batch(batch, layer, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    }
    EXPECT_EQ(client_->counter("leases_now"), 3u * kExperts);
    EXPECT_EQ(client_->counter("hits") + client_->counter("misses"), 3u * kExperts);
    client_.reset();
    service_.reset();
    std::filesystem::remove_all(model_);
  }
}

TEST_F(PageCacheServiceTest, DescribesItselfWithoutAnArena) {
  start(true);
  const auto description = client_->ask<ipc::ExpertsDescription>(ipc::DescribeExperts{});
  ASSERT_TRUE(description);
  EXPECT_EQ(description->layers, 4u);
  EXPECT_EQ(description->experts, kExperts);
  EXPECT_EQ(description->slots, 3u * kExperts);
  EXPECT_EQ(description->expert_bytes, kExpertBytes);
  EXPECT_EQ(description->arena_bytes, 0u);
}

TEST_F(PageCacheServiceTest, RefusesWhatItDoesNotServe) {
  start(false);
  for (const ipc::Message& request : std::initializer_list<ipc::Message>{
           ipc::Fetch{1, 0, {1}, 0}, ipc::Fetch{1, 4, {1}, 0}, ipc::Fetch{1, 1, {12}, 0},
           ipc::Fetch{1, 1, {2, 2}, 0}, ipc::Hint{0, {1}}, ipc::Hint{1, {12}},
           ipc::DescribeTrunk{}}) {
    const auto error = client_->ask<ipc::ErrorReply>(request);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error.code, ErrorCode::kUsage);
  }
}

TEST_F(PageCacheServiceTest, AHintCountsAtItsFirstDemandAlone) {
  start(false);
  client_->send(ipc::Hint{2, {7}});
  ASSERT_TRUE(test::run_until(loop_, [&] { return client_->counter("hints_read") == 1; }));
  for (const auto origin : {ipc::ExpertOrigin::kPrefetched, ipc::ExpertOrigin::kHit}) {
    client_->send(ipc::Fetch{1, 2, {7}, 0});
    const auto arrived = client_->next<ipc::Arrived>();
    ASSERT_TRUE(arrived);
    EXPECT_EQ(arrived->experts.at(0).source, origin);
    client_->send(ipc::BatchRelease{1});
  }
  EXPECT_EQ(client_->counter("prefetched_hits"), 1u);
}

TEST_F(PageCacheServiceTest, AnExpertThatCannotBeReadFailsByNameAndAlone) {
  start(false);
  // Layer 3 ends its shard: what lies on its last page is gone, the experts of other layers are
  // not.
  const std::filesystem::path shard =
      model_ /
      checkpoint_.shard_name(
          checkpoint_
              .at("language_model.model.layers.3.block_sparse_moe.experts.0.w1.weight_packed")
              .shard);
  ASSERT_EQ(::truncate(shard.c_str(), 0), 0);
  client_->send(ipc::Fetch{1, 3, {4}, 0});
  const auto failed = client_->next<ipc::ExpertFailed>();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->batch, 1u);
  EXPECT_EQ(failed->error.code, ErrorCode::kWeights);
  EXPECT_THAT(failed->error.message,
              AllOf(HasSubstr("layer 3 expert 4"), HasSubstr(shard.string())));
  client_->send(ipc::Fetch{2, 2, {4}, 0});
  expect_batch(2, 2, {4});
  EXPECT_EQ(client_->counter("read_errors"), 1u);
  EXPECT_EQ(client_->counter("leases_now"), 1u);
}

TEST_F(PageCacheServiceTest, ALifeHasItsOwnGeneration) {
  std::set<std::uint64_t> generations;
  for (int life = 0; life < 2; ++life) {
    start(false);
    client_->send(ipc::Fetch{1, 1, {0}, 0});
    const auto arrived = client_->next<ipc::Arrived>();
    ASSERT_TRUE(arrived);
    generations.insert(arrived->experts.at(0).parts.at(0).generation);
    client_.reset();
    service_.reset();
    std::filesystem::remove_all(model_);
  }
  EXPECT_EQ(generations.size(), 2u);
}

TEST_F(PageCacheServiceTest, ServesTheFirstLayersAlone) {
  start(false, 2);
  client_->send(ipc::Fetch{1, 1, {4}, 0});
  expect_batch(1, 1, {4});
  EXPECT_TRUE(client_->ask<ipc::ErrorReply>(ipc::Fetch{2, 2, {4}, 0}));
}

}  // namespace
}  // namespace k3::pagecache
