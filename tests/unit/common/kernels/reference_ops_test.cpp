// Third-party goldens of single operations, through every table.
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/unit/common/kernels/tables_under_test.h"
#include "tests/unit/support/reference_data.h"

namespace k3::kernels {
namespace {

class ReferenceOps : public EveryTable {
 protected:
  static nlohmann::json load(const std::filesystem::path& dir, const std::string& name) {
    std::ifstream file(dir / "ops" / (name + ".json"));
    return nlohmann::json::parse(file);
  }

  static std::vector<float> array(const nlohmann::json& json, const char* name) {
    return json.at(name).at("data").get<std::vector<float>>();
  }

  // The tolerance of ops/MANIFEST.json.
  static void expect_close(const std::vector<float>& got, const std::vector<float>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], want[i], 1e-5 + 1e-4 * std::abs(want[i])) << "value " << i;
    }
  }

  void check_recurrence(const nlohmann::json& json) const;
};

INSTANTIATE_TEST_SUITE_P(Kernels, ReferenceOps, testing::ValuesIn(all_tables()), candidate_name);

TEST_P(ReferenceOps, RmsNorm) {
  K3_REFERENCE_OR_SKIP(dir);
  const nlohmann::json json = load(dir, "rmsnorm");
  const std::vector<float> w = array(json, "weight");
  std::vector<float> values = array(json, "in");
  for (std::size_t row = 0; row < values.size(); row += w.size()) {
    table().rms_norm(&values[row], w.data(), json.at("eps"), &values[row], w.size());
  }
  expect_close(values, array(json, "out"));
}

TEST_P(ReferenceOps, Situ) {
  K3_REFERENCE_OR_SKIP(dir);
  const nlohmann::json json = load(dir, "situ_glu");
  const std::vector<float> in = array(json, "in");
  std::vector<float> out(in.size() / 2);
  for (std::size_t row = 0; row < in.size() / 16; ++row) {
    table().situ(&in[row * 16], &in[row * 16 + 8], &out[row * 8], 8, json.at("beta"),
                 json.at("linear_beta"));
  }
  expect_close(out, array(json, "out"));
  for (const float value : out) EXPECT_LE(std::abs(value), json.at("max_abs").get<float>());
}

TEST_P(ReferenceOps, ShortConvolution) {
  K3_REFERENCE_OR_SKIP(dir);
  const nlohmann::json json = load(dir, "shortconv");
  const std::size_t channels = json.at("channels");
  const std::size_t taps = json.at("kernel");
  const std::vector<float> w = array(json, "weight");
  std::vector<float> history((taps - 1) * channels, 0.0F);
  const auto convolve = [&](const std::vector<float>& in) {
    std::vector<float> out(in.size());
    for (std::size_t at = 0; at < in.size(); at += channels) {
      table().conv_silu(&in[at], w.data(), history.data(), &out[at], channels, taps);
    }
    return out;
  };
  expect_close(convolve(array(json, "in")), array(json, "out"));
  const std::vector<float> state = array(json, "state_after");  // [channels][taps - 1]
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t t = 0; t + 1 < taps; ++t) {
      EXPECT_EQ(history[t * channels + c], state[c * (taps - 1) + t]);
    }
  }
  expect_close(convolve(array(json, "in_next")), array(json, "out_next"));
}

TEST_P(ReferenceOps, KdaDecay) {
  K3_REFERENCE_OR_SKIP(dir);
  const nlohmann::json json = load(dir, "kda_decay");
  const std::vector<float> a_log = array(json, "A_log");
  const std::vector<float> bias = array(json, "dt_bias");
  const std::vector<float> z = array(json, "z");
  const std::size_t dim = bias.size() / a_log.size();
  std::vector<float> alpha(z.size());
  for (std::size_t at = 0; at < z.size(); at += dim) {
    const std::size_t channel = at % bias.size();
    table().kda_decay(&z[at], &bias[channel], table().exp(a_log[channel / dim]),
                      json.at("lower_bound"), &alpha[at], dim);
  }
  const std::vector<float> want = array(json, "alpha");
  ASSERT_EQ(want.size(), alpha.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(alpha[i], want[i], 1e-5) << i;
}

void ReferenceOps::check_recurrence(const nlohmann::json& json) const {
  const std::size_t steps = json.at("T");
  const std::size_t heads = json.at("H");
  const std::size_t d_k = json.at("d_k");
  const std::size_t d_v = json.at("d_v");
  std::vector<float> q = array(json, "q");
  const std::vector<float> k = array(json, "k");
  const std::vector<float> v = array(json, "v");
  const std::vector<float> alpha = array(json, "alpha");
  const std::vector<float> beta = array(json, "beta");
  table().scale(json.at("q_scale"), q.data(), q.size());
  std::vector<float> state(heads * d_k * d_v, 0.0F);
  std::vector<float> out(steps * heads * d_v);
  for (std::size_t row = 0; row < steps * heads; ++row) {
    table().kda_step(&state[row % heads * d_k * d_v], &q[row * d_k], &k[row * d_k], &v[row * d_v],
                     &alpha[row * d_k], beta[row], &out[row * d_v], d_k, d_v);
  }
  expect_close(out, array(json, "out"));
  expect_close(state, array(json, "state_out"));
}

TEST_P(ReferenceOps, KdaRecurrenceOneStep) {
  K3_REFERENCE_OR_SKIP(dir);
  check_recurrence(load(dir, "kda_recur1"));
}

TEST_P(ReferenceOps, KdaRecurrenceEightSteps) {
  K3_REFERENCE_OR_SKIP(dir);
  check_recurrence(load(dir, "kda_recur8"));
}

}  // namespace
}  // namespace k3::kernels
