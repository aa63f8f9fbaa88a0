// Everything but the products: each table against the reference bit for bit, at every tail, off
// vector alignment, in place where that is allowed, and on special values.
#include <cmath>
#include <functional>
#include <limits>

#include "tests/unit/common/kernels/tables_under_test.h"

namespace k3::kernels {
namespace {

std::vector<std::size_t> lengths() {
  std::vector<std::size_t> result;
  for (std::size_t n = 1; n <= 70; ++n) result.push_back(n);
  result.insert(result.end(), {128, 512, 3072, 7168});
  return result;
}

// Ordinary values with special ones among them; elements 1..n are used.
std::vector<float> operand(std::size_t n, std::uint32_t seed, float spread = 3.0F) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kSpecial[] = {kInfinity, -kInfinity, NAN,   0.0F,   -0.0F, 1e-42F,
                                -1e-42F,   3e38F,      88.7F, -87.4F, 103.0F};
  std::vector<float> values = random_floats(n + 1, seed, spread);
  for (std::size_t i = 5 + seed; i <= n; i += 13)
    values[i] = kSpecial[i / 13 % std::size(kSpecial)];
  return values;
}

class Elementwise : public EveryTable {
 protected:
  // `body` runs a function of the table on vectors it fills from the length; it returns the output.
  using Body = std::function<std::vector<float>(const KernelTable&, std::size_t n)>;

  void expect_reference_bits(const Body& body) const {
    for (const std::size_t n : lengths()) {
      EXPECT_TRUE(same_bits(body(table(), n), body(reference_table(), n))) << "length " << n;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, Elementwise, testing::ValuesIn(fast_tables()), candidate_name);

TEST_P(Elementwise, AxpyAddScaleMatchReference) {
  expect_reference_bits([](const KernelTable& t, std::size_t n) {
    std::vector<float> y = operand(n, 1);
    t.axpy(0.7F, operand(n, 2).data() + 1, y.data() + 1, n);
    return y;
  });
  expect_reference_bits([](const KernelTable& t, std::size_t n) {
    std::vector<float> y = operand(n, 1);
    t.add(operand(n, 2).data() + 1, y.data() + 1, n);
    return y;
  });
  expect_reference_bits([](const KernelTable& t, std::size_t n) {
    std::vector<float> y = operand(n, 1);
    t.scale(0.7F, y.data() + 1, n);
    return y;
  });
}

TEST_P(Elementwise, Bf16VectorsMatchReferenceAtOddAddresses) {
  expect_reference_bits([](const KernelTable& t, std::size_t n) {
    std::vector<float> y = operand(n, 1);
    t.axpy_bf16(0.7F, random_bytes(2 * n + 1, 3).data() + 1, y.data() + 1, n);
    return y;
  });
  expect_reference_bits([](const KernelTable& t, std::size_t n) {
    std::vector<float> y(n + 1);
    t.widen_bf16(random_bytes(2 * n + 1, 3).data() + 1, y.data() + 1, n);
    return y;
  });
}

TEST_P(Elementwise, SigmoidsMatchReference) {
  expect_reference_bits([](const KernelTable& t, std::size_t n) {
    std::vector<float> y = operand(n, 1, 10.0F);
    t.sigmoid(y.data() + 1, n);
    return y;
  });
  expect_reference_bits([](const KernelTable& t, std::size_t n) {
    std::vector<float> y = operand(n, 1, 10.0F);
    t.silu(y.data() + 1, n);
    return y;
  });
  expect_reference_bits([](const KernelTable& t, std::size_t n) {
    std::vector<float> y = operand(n, 1);
    t.gate_by_sigmoid(operand(n, 2, 10.0F).data() + 1, y.data() + 1, n);
    return y;
  });
}

TEST_P(Elementwise, SituMatchesReferenceInPlaceToo) {
  const auto separate = [](const KernelTable& t, std::size_t n) {
    std::vector<float> out(n + 1);
    t.situ(operand(n, 1, 8.0F).data() + 1, operand(n, 2, 40.0F).data() + 1, out.data() + 1, n, 4.0F,
           25.0F);
    return std::vector<float>(out.begin() + 1, out.end());
  };
  const auto over_gate = [](const KernelTable& t, std::size_t n) {
    std::vector<float> out = operand(n, 1, 8.0F);
    t.situ(out.data() + 1, operand(n, 2, 40.0F).data() + 1, out.data() + 1, n, 4.0F, 25.0F);
    return std::vector<float>(out.begin() + 1, out.end());
  };
  const auto over_up = [](const KernelTable& t, std::size_t n) {
    std::vector<float> out = operand(n, 2, 40.0F);
    t.situ(operand(n, 1, 8.0F).data() + 1, out.data() + 1, out.data() + 1, n, 4.0F, 25.0F);
    return std::vector<float>(out.begin() + 1, out.end());
  };
  expect_reference_bits(separate);
  for (const std::size_t n : lengths()) {
    EXPECT_TRUE(same_bits(over_gate(table(), n), separate(reference_table(), n))) << n;
    EXPECT_TRUE(same_bits(over_up(table(), n), separate(reference_table(), n))) << n;
  }
}

TEST_P(Elementwise, SoftmaxMatchesReference) {
  expect_reference_bits([](const KernelTable& t, std::size_t n) {
    std::vector<float> y = random_floats(n + 1, 1, 5.0F);
    t.softmax(y.data() + 1, n);
    return y;
  });
  expect_reference_bits([](const KernelTable& t, std::size_t n) {
    std::vector<float> y = operand(n, 1);
    t.softmax(y.data() + 1, n);
    return y;
  });
}

TEST_P(Elementwise, SoftmaxBlocksMatchReference) {
  expect_reference_bits([](const KernelTable& t, std::size_t n) {
    float top = -std::numeric_limits<float>::infinity();
    float sum = 0.0F;
    std::vector<float> out;
    for (const std::uint32_t seed : {1U, 2U, 3U}) {
      std::vector<float> y = random_floats(n + 1, seed, 5.0F);
      out.push_back(t.softmax_block(y.data() + 1, n, &top, &sum));
      out.insert(out.end(), y.begin(), y.end());
    }
    out.insert(out.end(), {top, sum});
    return out;
  });
}

TEST_P(Elementwise, WeightedRowsAreAddedOneByOne) {
  for (const std::size_t count : {1U, 5U, 64U}) {
    for (const std::size_t n : {1U, 15U, 127U, 128U, 131U, 512U, 600U}) {
      const std::size_t stride = n + 3;
      const std::vector<float> rows = random_floats(1 + count * stride, 1);
      const std::vector<float> weights = random_floats(count, 2);
      std::vector<float> y = random_floats(n + 1, 3);
      std::vector<float> want = y;
      for (std::size_t t = 0; t < count; ++t) {
        for (std::size_t i = 0; i < n; ++i) {
          want[1 + i] = std::fma(weights[t], rows[1 + t * stride + i], want[1 + i]);
        }
      }
      table().add_weighted_rows(weights.data(), rows.data() + 1, stride, count, y.data() + 1, n);
      EXPECT_TRUE(same_bits(y, want)) << count << " rows of " << n;
    }
  }
}

TEST_P(Elementwise, NormsMatchReferenceInPlaceToo) {
  const auto separate = [](const KernelTable& t, std::size_t n) {
    std::vector<float> out(n + 1);
    t.rms_norm(random_floats(n + 1, 1).data() + 1, random_floats(n + 1, 2).data() + 1, 1e-5F,
               out.data() + 1, n);
    return std::vector<float>(out.begin() + 1, out.end());
  };
  expect_reference_bits(separate);
  for (const std::size_t n : lengths()) {
    std::vector<float> out = random_floats(n + 1, 1);
    table().rms_norm(out.data() + 1, random_floats(n + 1, 2).data() + 1, 1e-5F, out.data() + 1, n);
    out.erase(out.begin());
    EXPECT_TRUE(same_bits(out, separate(reference_table(), n))) << n;
  }
  expect_reference_bits([](const KernelTable& t, std::size_t n) {
    std::vector<float> y = random_floats(n + 1, 1);
    t.l2_norm(y.data() + 1, 1e-6F, n);
    return y;
  });
}

TEST_P(Elementwise, ConvolutionMatchesReference) {
  for (const std::size_t taps : {1U, 2U, 3U, 4U, 5U}) {
    expect_reference_bits([taps](const KernelTable& t, std::size_t n) {
      std::vector<float> history = random_floats(1 + (taps - 1) * n, 4);
      std::vector<float> out(n + 1);
      const std::vector<float> w = random_floats(1 + taps * n, 5);
      for (std::uint32_t step = 0; step < 3; ++step) {
        t.conv_silu(random_floats(n + 1, 6 + step).data() + 1, w.data() + 1, history.data() + 1,
                    out.data() + 1, n, taps);
      }
      out.insert(out.end(), history.begin(), history.end());
      return out;
    });
  }
}

TEST_P(Elementwise, KdaMatchesReference) {
  expect_reference_bits([](const KernelTable& t, std::size_t n) {
    std::vector<float> alpha(n + 1);
    t.kda_decay(operand(n, 1).data() + 1, operand(n, 2).data() + 1, 1.7F, -5.0F, alpha.data() + 1,
                n);
    return alpha;
  });
  for (const auto& [d_k, d_v] :
       {std::pair<std::size_t, std::size_t>{128, 128}, {16, 16}, {7, 13}, {20, 87}, {33, 160}}) {
    const auto step = [&, d_k = d_k, d_v = d_v](const KernelTable& t) {
      std::vector<float> state = random_floats(1 + d_k * d_v, 1);
      std::vector<float> out(d_v + 1);
      t.kda_step(state.data() + 1, random_floats(d_k + 1, 2).data() + 1,
                 random_floats(d_k + 1, 3).data() + 1, random_floats(d_v + 1, 4).data() + 1,
                 random_floats(d_k + 1, 5).data() + 1, 0.3F, out.data() + 1, d_k, d_v);
      out.insert(out.end(), state.begin(), state.end());
      return out;
    };
    EXPECT_TRUE(same_bits(step(table()), step(reference_table()))) << d_k << "x" << d_v;
  }
}

TEST_P(Elementwise, ExpMatchesReference) {
  for (const float x : operand(4000, 1, 40.0F)) {
    EXPECT_TRUE(same_bits(table().exp(x), reference_table().exp(x))) << x;
  }
}

}  // namespace
}  // namespace k3::kernels
