// Expert selection and weights.
#include "services/compute/router.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "common/kernels/select.h"
#include "tests/unit/services/compute/golden.h"
#include "tests/unit/support/reference_data.h"

namespace k3::compute::test {
namespace {

using ::testing::ElementsAre;

TEST(Router, MatchesGolden) {
  K3_REFERENCE_OR_SKIP(reference);
  const auto golden = read_json(reference / "ops/router.json");
  const auto gate = values(golden, "gate_weight");
  const auto bias = values(golden, "bias");
  const auto in = values(golden, "in");
  const auto want_index = values(golden, "topk_idx");
  const auto want_weight = values(golden, "topk_weight");
  const kernels::KernelTable& table = kernels::reference_table();
  int changed_by_bias = 0;
  for (std::size_t row = 0; row < 6; ++row) {
    std::vector<float> scores(8);
    table.matmul_f32(reinterpret_cast<const std::uint8_t*>(gate.data()), 8, 128,
                     in.data() + row * 128, 128, 1, scores.data(), 8);
    table.sigmoid(scores.data(), 8);
    const Route route = route_row(scores, bias, 2, 1.0f);
    for (std::size_t j = 0; j < 2; ++j) {
      const auto expert = static_cast<std::uint32_t>(want_index[row * 2 + j]);
      const auto found = std::find(route.experts.begin(), route.experts.end(), expert);
      ASSERT_NE(found, route.experts.end()) << "row " << row << " expert " << expert;
      EXPECT_NEAR(route.weights[found - route.experts.begin()], want_weight[row * 2 + j], 1e-5);
    }
    auto biased = route.experts;
    auto plain = route_row(scores, std::vector<float>(8), 2, 1.0f).experts;
    std::sort(biased.begin(), biased.end());
    std::sort(plain.begin(), plain.end());
    changed_by_bias += biased != plain ? 1 : 0;
  }
  EXPECT_EQ(changed_by_bias, golden.at("rows_where_bias_changed_selection").get<int>());
}

TEST(Router, TiesGoToTheLowerIndex) {
  const std::vector<float> scores = {0.5f, 0.75f, 0.5f, 0.75f, 0.5f};
  EXPECT_THAT(route_row(scores, std::vector<float>(5), 3, 1.0f).experts, ElementsAre(1, 3, 0));
}

TEST(Router, BiasSteersSelectionButNotWeights) {
  const std::vector<float> scores = {0.25f, 0.5f, 0.75f};
  const Route route = route_row(scores, std::vector<float>{1.0f, 0.0f, 0.0f}, 2, 2.0f);
  EXPECT_THAT(route.experts, ElementsAre(0, 2));
  EXPECT_THAT(route.weights, ElementsAre(0.5f, 1.5f));
}

TEST(Router, NanIsNeverPreferred) {
  const std::vector<float> scores = {std::numeric_limits<float>::quiet_NaN(), 0.5f, 0.25f};
  EXPECT_THAT(route_row(scores, std::vector<float>(3), 2, 1.0f).experts, ElementsAre(1, 2));
}

}  // namespace
}  // namespace k3::compute::test
