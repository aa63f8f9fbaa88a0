// The tiny oracle's model over memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "services/compute/model.h"
#include "tests/unit/services/compute/golden.h"
#include "tests/unit/services/compute/memory_weights.h"

namespace k3::compute::test {

struct TestModel {
  TestModel(
      const Oracle& oracle, const kernels::KernelTable& table, int threads, std::size_t max_rows,
      std::uint32_t block_rows = 1000,
      MemoryExperts::Order order = MemoryExperts::Order::kAscending,
      Pump pump = [] { return Status{}; })
      : trunk_tensors(trunk_order(oracle.config)),
        multiplier(table, threads),
        trunk(trunk_tensors, oracle.weights, block_rows),
        experts(oracle.config, oracle.weights, order),
        model(oracle.config, max_rows, multiplier, trunk, experts, std::move(pump)) {}

  // Logits of every position of `ids`, in batches of at most `chunk`.
  std::vector<float> all_logits(std::span<const std::int32_t> ids, std::size_t chunk) {
    Session session = model.new_session();
    std::vector<float> logits;
    for (std::size_t first = 0; first < ids.size(); first += chunk) {
      std::vector<Row> rows;
      for (std::size_t i = first; i < std::min(first + chunk, ids.size()); ++i) {
        rows.push_back({.id = ids[i],
                        .session = &session,
                        .position = static_cast<std::uint32_t>(i),
                        .logits_wanted = true});
      }
      const auto got = model.forward(rows, true);
      EXPECT_TRUE(got) << got.error().message;
      if (!got) return {};
      logits.insert(logits.end(), got->begin(), got->end());
    }
    EXPECT_EQ(session.length(), ids.size());
    return logits;
  }

  std::vector<TrunkTensor> trunk_tensors;
  kernels::Multiplier multiplier;
  MemoryTrunk trunk;
  MemoryExperts experts;
  Model model;
};

}  // namespace k3::compute::test
