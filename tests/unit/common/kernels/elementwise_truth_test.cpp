// Vector functions against plain arithmetic in double precision.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/unit/common/kernels/tables_under_test.h"

namespace k3::kernels {
namespace {

constexpr std::size_t kLength = 1000;

double exact_sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

class ElementwiseTruth : public EveryTable {
 protected:
  const std::vector<float> x_ = random_floats(kLength, 1, 4.0F);
  std::vector<float> y_ = random_floats(kLength, 2, 4.0F);
  const std::vector<float> before_ = y_;
};

INSTANTIATE_TEST_SUITE_P(Kernels, ElementwiseTruth, testing::ValuesIn(all_tables()),
                         candidate_name);

TEST_P(ElementwiseTruth, AxpyIsFused) {
  table().axpy(1.3F, x_.data(), y_.data(), kLength);
  for (std::size_t i = 0; i < kLength; ++i) EXPECT_EQ(y_[i], std::fma(1.3F, x_[i], before_[i]));
}

TEST_P(ElementwiseTruth, AddAndScale) {
  table().add(x_.data(), y_.data(), kLength);
  table().scale(-0.3F, y_.data(), kLength);
  for (std::size_t i = 0; i < kLength; ++i) {
    const float sum = before_[i] + x_[i];
    EXPECT_EQ(y_[i], -0.3F * sum);
  }
}

TEST_P(ElementwiseTruth, Bf16IsTheUpperHalfOfAFloat) {
  std::vector<std::uint8_t> halves(2 * kLength);
  std::vector<float> truncated(kLength);
  for (std::size_t i = 0; i < kLength; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x_[i]);
    truncated[i] = std::bit_cast<float>(bits & 0xFFFF0000U);
    halves[2 * i] = static_cast<std::uint8_t>(bits >> 16);
    halves[2 * i + 1] = static_cast<std::uint8_t>(bits >> 24);
  }
  std::vector<float> widened(kLength);
  table().widen_bf16(halves.data(), widened.data(), kLength);
  EXPECT_TRUE(same_bits(widened, truncated));
  table().axpy_bf16(1.3F, halves.data(), y_.data(), kLength);
  for (std::size_t i = 0; i < kLength; ++i) {
    EXPECT_EQ(y_[i], std::fma(1.3F, truncated[i], before_[i]));
  }
}

TEST_P(ElementwiseTruth, SiluAndGate) {
  std::vector<float> silu = x_;
  table().silu(silu.data(), kLength);
  table().gate_by_sigmoid(x_.data(), y_.data(), kLength);
  for (std::size_t i = 0; i < kLength; ++i) {
    const double gate = exact_sigmoid(x_[i]);
    EXPECT_NEAR(silu[i], x_[i] * gate, std::abs(x_[i] * gate) * 4e-7);
    EXPECT_NEAR(y_[i], before_[i] * gate, std::abs(before_[i] * gate) * 4e-7);
  }
}

TEST_P(ElementwiseTruth, SituCapsBothSidesAndKeepsTheSigmoidUncapped) {
  std::vector<float> out(kLength);
  const std::vector<float> gate = random_floats(kLength, 3, 10.0F);
  table().situ(gate.data(), x_.data(), out.data(), kLength, 4.0F, 25.0F);
  for (std::size_t i = 0; i < kLength; ++i) {
    const double g = gate[i];
    const double want =
        4.0 * std::tanh(g / 4.0) * exact_sigmoid(g) * (25.0 * std::tanh(x_[i] / 25.0));
    EXPECT_NEAR(out[i], want, std::abs(want) * 2e-6) << gate[i] << " " << x_[i];
  }
}

TEST_P(ElementwiseTruth, Softmax) {
  for (const std::size_t n : {1U, 9U, 16U, 23U, 1000U}) {
    std::vector<float> y(before_.begin(), before_.begin() + static_cast<std::ptrdiff_t>(n));
    for (float& value : y) value += 300.0F;  // overflows unless the largest is taken off
    const std::vector<float> scores = y;
    table().softmax(y.data(), n);
    const double top = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const float score : scores) sum += std::exp(score - top);
    for (std::size_t i = 0; i < n; ++i) {
      const double want = std::exp(scores[i] - top) / sum;
      EXPECT_NEAR(y[i], want, want * 2e-6) << i << " of " << n;
    }
  }
}

TEST_P(ElementwiseTruth, SoftmaxInBlocks) {
  constexpr std::size_t kBlock = 50;  // no multiple of the lanes
  // Each of four blocks rounds a difference of scores below 64, by 2e-6 at most.
  constexpr double kTolerance = 1e-5;
  for (const float slope : {0.1F, -0.1F}) {  // the largest rises with every block, or never
    std::vector<float> y(before_.begin(), before_.begin() + 4 * kBlock);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += slope * static_cast<float>(i);
    const std::vector<float> scores = y;
    float top = -std::numeric_limits<float>::infinity();
    float sum = 0.0F;
    for (std::size_t block = 0; block < y.size(); block += kBlock) {
      const float factor = table().softmax_block(y.data() + block, kBlock, &top, &sum);
      for (std::size_t i = 0; i < block; ++i) y[i] *= factor;
    }
    const double exact_top = *std::max_element(scores.begin(), scores.end());
    EXPECT_EQ(top, exact_top);
    double exact_sum = 0;
    for (const float score : scores) exact_sum += std::exp(score - exact_top);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double want = std::exp(scores[i] - exact_top) / exact_sum;
      EXPECT_NEAR(y[i] / sum, want, want * kTolerance) << i;
    }
  }
}

TEST_P(ElementwiseTruth, SoftmaxFindsTheLargestAnywhere) {
  for (std::size_t at = 0; at < 50; ++at) {
    std::vector<float> y(50, -200.0F);
    y[at] = 200.0F;
    table().softmax(y.data(), y.size());
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], i == at ? 1.0F : 0.0F);
  }
}

TEST_P(ElementwiseTruth, Norms) {
  const std::vector<float> w = random_floats(kLength, 4);
  std::vector<float> rms(kLength);
  table().rms_norm(x_.data(), w.data(), 0.25F, rms.data(), kLength);
  table().l2_norm(y_.data(), 0.25F, kLength);
  double x_squares = 0;
  double y_squares = 0;
  for (std::size_t i = 0; i < kLength; ++i) {
    x_squares += static_cast<double>(x_[i]) * x_[i];
    y_squares += static_cast<double>(before_[i]) * before_[i];
  }
  for (std::size_t i = 0; i < kLength; ++i) {
    const double want_rms = w[i] * x_[i] / std::sqrt(x_squares / kLength + 0.25);
    EXPECT_NEAR(rms[i], want_rms, std::abs(want_rms) * 2e-6);
    const double want_l2 = before_[i] / std::sqrt(y_squares + 0.25);
    EXPECT_NEAR(y_[i], want_l2, std::abs(want_l2) * 2e-6);
  }
}

}  // namespace
}  // namespace k3::kernels
