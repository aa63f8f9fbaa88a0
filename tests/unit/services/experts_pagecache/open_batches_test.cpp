// Batch numbers of clients that come, ask and go.
#include "services/experts_pagecache/open_batches.h"

#include <gtest/gtest.h>

namespace k3::pagecache {
namespace {

TEST(OpenBatches, ANumberIsFreeAgainAfterItsBatch) {
  OpenBatches batches;
  const auto first = batches.open(1, 7);
  ASSERT_TRUE(first);
  EXPECT_EQ(batches.open(1, 7).error().code, ErrorCode::kUsage);
  batches.close(1, 7);
  batches.close(1, 7);  // nothing happens
  EXPECT_EQ(batches.find(*first), nullptr);
  const auto second = batches.open(1, 7);
  ASSERT_TRUE(second);
  EXPECT_NE(*second, *first);
}

TEST(OpenBatches, ClientsShareNoNumbers) {
  OpenBatches batches;
  const auto mine = batches.open(1, 7);
  const auto theirs = batches.open(2, 7);
  ASSERT_TRUE(mine && theirs);
  batches.find(*mine)->leases = 3;
  batches.find(*theirs)->leases = 4;
  EXPECT_EQ(batches.leases(), 7u);
  batches.close(2, 7);
  EXPECT_EQ(batches.leases(), 3u);
  EXPECT_NE(batches.find(*mine), nullptr);
}

TEST(OpenBatches, ADeadClientsBatchesEndAndNoOthers) {
  OpenBatches batches;
  const auto before = batches.open(1, 1);
  for (std::uint64_t number = 0; number < 5; ++number) ASSERT_TRUE(batches.open(2, number));
  const auto behind = batches.open(3, 1);
  batches.find(*batches.open(2, ~std::uint64_t{0}))->leases = 9;
  batches.close_all(2);
  EXPECT_EQ(batches.leases(), 0u);
  EXPECT_NE(batches.find(*before), nullptr);
  EXPECT_NE(batches.find(*behind), nullptr);
  EXPECT_TRUE(batches.open(2, 1));
}

TEST(OpenBatches, AreLimitedForEachClient) {
  OpenBatches batches;
  for (std::uint64_t number = 0; number < OpenBatches::kMost; ++number) {
    ASSERT_TRUE(batches.open(1, number));
  }
  EXPECT_EQ(batches.open(1, 5000).error().code, ErrorCode::kUsage);
  EXPECT_TRUE(batches.open(2, 5000));
  batches.close(1, 0);
  EXPECT_TRUE(batches.open(1, 5000));
}

}  // namespace
}  // namespace k3::pagecache
