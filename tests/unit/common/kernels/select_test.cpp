// The choice of the kernel table.
#include "common/kernels/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace k3::kernels {
namespace {

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const KernelTable* table : supported_tables()) result.emplace_back(table->name);
  return result;
}

TEST(Select, OffersWhatTheCpuHasBestFirst) {
  std::vector<std::string> expected;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    expected.emplace_back("avx512");
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    expected.emplace_back("avx2");
  }
#elif defined(__aarch64__)
  expected.emplace_back("neon");
#endif
  expected.emplace_back("reference");
  EXPECT_EQ(names(), expected);
}

TEST(Select, EmptyNameTakesTheBest) {
  const auto table = select_table("");
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(*table, supported_tables().front());
}

TEST(Select, NameForcesATable) {
  for (const std::string& name : names()) {
    const auto table = select_table(name);
    ASSERT_TRUE(table.has_value());
    EXPECT_EQ((*table)->name, name);
  }
}

TEST(Select, UnknownNameIsAUsageErrorThatListsTheSupported) {
  for (const std::string_view name : {"avx1024", "AVX2", "NEON", "ref"}) {
    const auto table = select_table(name);
    ASSERT_FALSE(table.has_value());
    EXPECT_EQ(table.error().code, ErrorCode::kUsage);
    EXPECT_THAT(table.error().message, testing::HasSubstr(std::string(name)));
    for (const std::string& supported : names()) {
      EXPECT_THAT(table.error().message, testing::HasSubstr(supported));
    }
  }
}

TEST(Select, UnsupportedTableIsRefused) {
  const std::vector<std::string> supported = names();
  for (const std::string_view name : {"avx512", "avx2", "neon"}) {
    const bool listed = testing::Value(supported, testing::Contains(std::string(name)));
    EXPECT_EQ(select_table(name).has_value(), listed) << name;
  }
}

TEST(Select, EveryTableIsComplete) {
  for (const KernelTable* t : supported_tables()) {
    SCOPED_TRACE(t->name);
    EXPECT_TRUE(t->matmul_f32 && t->matmul_bf16 && t->matmul_mxfp4 && t->dot);
    EXPECT_TRUE(t->axpy && t->axpy_bf16 && t->add && t->scale && t->widen_bf16);
    EXPECT_TRUE(t->sigmoid && t->silu && t->gate_by_sigmoid && t->situ && t->softmax);
    EXPECT_TRUE(t->softmax_block && t->add_weighted_rows);
    EXPECT_TRUE(t->rms_norm && t->l2_norm && t->kda_decay && t->kda_step && t->conv_silu);
    EXPECT_TRUE(t->exp != nullptr);
  }
}

}  // namespace
}  // namespace k3::kernels
