#include "common/plan/compute_memory.h"

#include <gtest/gtest.h>

#include "tests/unit/common/checkpoint/released_config.h"

namespace k3 {
namespace {

ModelConfig released() {
  return parse_model_config(test::released_config().dump(), "config.json").value();
}

TEST(SequenceBytes, OfTheReleasedModel) {
  // 69 KDA layers: 96 heads of 128 x 128 and three inputs of each of three convolutions, as fp32.
  const std::uint64_t kda = 69u * (96 * 128 * 128 + 9 * 96 * 128) * 4;
  EXPECT_EQ(sequence_bytes(released(), 0), kda);
  // 24 MLA layers of 576 floats a position, in blocks of 256 positions.
  EXPECT_EQ(sequence_bytes(released(), 1024) - kda, 1024u * 24 * 576 * 4);
  EXPECT_EQ(sequence_bytes(released(), 1), sequence_bytes(released(), 256));
}

TEST(ActivationBytes, GrowWithRows) {
  const std::uint64_t one = activation_bytes(released(), 1);
  const std::uint64_t two = activation_bytes(released(), 2);
  // At least the residual stream (8 snapshots and the prefix) and the logits of the other row.
  EXPECT_GE(two - one, (9u * 7168 + 163840) * 4);
}

}  // namespace
}  // namespace k3
