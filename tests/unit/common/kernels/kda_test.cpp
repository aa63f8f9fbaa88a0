// KDA over thousands of steps against the same recurrence in double precision.
#include <numeric>

#include "tests/unit/common/kernels/tables_under_test.h"

namespace k3::kernels {
namespace {

constexpr std::size_t kDim = 16;
constexpr int kSteps = 4000;

// One head's recurrence as the model page writes it, in double.
struct DoubleHead {
  std::vector<double> state = std::vector<double>(kDim * kDim, 0.0);

  std::vector<double> step(const std::vector<float>& q, const std::vector<float>& k,
                           const std::vector<float>& v, double alpha, double beta) {
    std::vector<double> out(kDim, 0.0);
    for (std::size_t j = 0; j < kDim; ++j) {
      double u = 0;
      for (std::size_t i = 0; i < kDim; ++i) u += alpha * state[i * kDim + j] * k[i];
      for (std::size_t i = 0; i < kDim; ++i) {
        double& s = state[i * kDim + j];
        s = alpha * s + k[i] * beta * (v[j] - u);
        out[j] += s * q[i];
      }
    }
    return out;
  }
};

class Kda : public EveryTable {
 protected:
  // Runs kSteps with one gate input for all channels; `exact_alpha` is what it must amount to.
  void run(float z, double exact_alpha) const {
    const KernelTable& t = table();
    const std::vector<float> gate(kDim, z);
    const std::vector<float> bias(kDim, 0.0F);
    std::vector<float> alpha(kDim);
    t.kda_decay(gate.data(), bias.data(), 1.0F, -5.0F, alpha.data(), kDim);
    for (const float value : alpha) ASSERT_NEAR(value, exact_alpha, exact_alpha * 4e-7);

    DoubleHead exact;
    std::vector<float> state(kDim * kDim, 0.0F);
    std::vector<float> out(kDim);
    for (int step = 0; step < kSteps; ++step) {
      const auto seed = static_cast<std::uint32_t>(step);
      const std::vector<float> q = random_floats(kDim, 3 * seed, 0.25F);
      std::vector<float> k = random_floats(kDim, 3 * seed + 1);
      const std::vector<float> v = random_floats(kDim, 3 * seed + 2);
      t.l2_norm(k.data(), 1e-6F, kDim);
      const float beta = static_cast<float>(1 + step % 9) / 10.0F;
      t.kda_step(state.data(), q.data(), k.data(), v.data(), alpha.data(), beta, out.data(), kDim,
                 kDim);
      const std::vector<double> want = exact.step(q, k, v, exact_alpha, beta);
      for (std::size_t j = 0; j < kDim; ++j) ASSERT_NEAR(out[j], want[j], 5e-5) << "step " << step;
    }
    for (std::size_t i = 0; i < state.size(); ++i) ASSERT_NEAR(state[i], exact.state[i], 5e-5);
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, Kda, testing::ValuesIn(all_tables()), candidate_name);

TEST_P(Kda, DecayAtItsBoundStaysExact) { run(200.0F, std::exp(-5.0)); }

TEST_P(Kda, DecayOfZeroStaysExact) { run(-200.0F, 1.0); }

TEST_P(Kda, DecayBetweenStaysExact) { run(-3.0F, std::exp(-5.0 / (1.0 + std::exp(3.0)))); }

TEST_P(Kda, InfiniteGateInputsReachTheBoundsExactly) {
  const std::vector<float> z = {INFINITY, -INFINITY, 3e38F, -3e38F};
  const std::vector<float> bias(4, 1.0F);
  std::vector<float> alpha(4);
  table().kda_decay(z.data(), bias.data(), 2.0F, -5.0F, alpha.data(), 4);
  EXPECT_EQ(alpha[0], table().exp(-5.0F));
  EXPECT_EQ(alpha[1], 1.0F);
  EXPECT_EQ(alpha[2], table().exp(-5.0F));
  EXPECT_EQ(alpha[3], 1.0F);
}

}  // namespace
}  // namespace k3::kernels
