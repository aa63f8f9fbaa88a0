// exp, sigmoid and tanh against the double-precision library: at most 2 ulp over all floats.
#include <algorithm>

#include "tests/unit/common/kernels/tables_under_test.h"

namespace k3::kernels {
namespace {

// Distance of `got` from `want` in units of the last place a float has at `want`.
double ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  const auto rounded = static_cast<float>(want);
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : INFINITY;
  int exponent = 0;
  std::frexp(want, &exponent);
  return std::abs(got - want) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

// Floats spread over all bit patterns (NaN and infinities among them), and densely over the range
// where the functions do anything.
std::vector<float> samples() {
  std::vector<float> values;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 16381) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (int i = -110000; i < 95000; ++i) values.push_back(static_cast<float>(i) * 1.0001e-3F);
  for (int i = 0; i < 50000; ++i) values.push_back(static_cast<float>(i) * 2.0003e-5F);
  values.insert(values.end(), {INFINITY, -INFINITY, 0.0F, -0.0F, 88.72283F, 88.72284F, -103.97207F,
                               -103.97208F, -87.33654F, -87.33655F});
  return values;
}

class Transcendental : public EveryTable {};

INSTANTIATE_TEST_SUITE_P(Kernels, Transcendental, testing::ValuesIn(all_tables()), candidate_name);

TEST_P(Transcendental, ExpWithinTwoUlp) {
  for (const float x : samples()) {
    const float got = table().exp(x);
    ASSERT_LE(ulps(got, std::exp(static_cast<double>(x))), 2.0) << std::hexfloat << x << " " << got;
  }
}

TEST_P(Transcendental, ExpReachesItsBounds) {
  EXPECT_EQ(table().exp(0.0F), 1.0F);
  EXPECT_EQ(table().exp(-INFINITY), 0.0F);
  EXPECT_EQ(table().exp(-104.0F), 0.0F);
  EXPECT_EQ(table().exp(-103.9F), 0x1p-149F);
  EXPECT_EQ(table().exp(INFINITY), INFINITY);
  EXPECT_EQ(table().exp(88.73F), INFINITY);
  EXPECT_LT(table().exp(88.72F), INFINITY);
  EXPECT_TRUE(std::isnan(table().exp(NAN)));
}

TEST_P(Transcendental, SigmoidWithinTwoUlp) {
  const std::vector<float> x = samples();
  std::vector<float> y = x;
  table().sigmoid(y.data(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double want = 1.0 / (1.0 + std::exp(-static_cast<double>(x[i])));
    ASSERT_LE(ulps(y[i], want), 2.0) << std::hexfloat << x[i] << " " << y[i];
  }
}

TEST_P(Transcendental, TanhWithinTwoUlp) {
  // With both betas 1 and a large gate, the other factors of situ are exactly 1.
  const std::vector<float> x = samples();
  const std::vector<float> gate(x.size(), 60.0F);
  std::vector<float> y(x.size());
  table().situ(gate.data(), x.data(), y.data(), x.size(), 1.0F, 1.0F);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_LE(ulps(y[i], std::tanh(static_cast<double>(x[i]))), 2.0)
        << std::hexfloat << x[i] << " " << y[i];
    ASSERT_TRUE(std::isnan(x[i]) || std::signbit(y[i]) == std::signbit(x[i])) << x[i];
  }
}

}  // namespace
}  // namespace k3::kernels
