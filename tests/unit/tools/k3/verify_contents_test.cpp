#include "tools/k3/verify_contents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/support/temp_dir.h"
#include "tests/unit/support/tiny_checkpoint.h"

namespace k3::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kExpertName =
    "language_model.model.layers.2.block_sparse_moe.experts.10.w2.weight_";

std::vector<std::string> findings_of(const test::TinyCheckpoint& checkpoint) {
  const test::TempDir dir;
  write_tiny_checkpoint(checkpoint, dir.path());
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  ContentsCheck check([&](std::uint64_t now, std::uint64_t all) {
    done = now;
    total = all;
  });
  check.check_tensors(Checkpoint::open(dir.path(), {}).value(), nullptr);
  EXPECT_GT(total, 0u);
  EXPECT_EQ(done, total);
  return check.findings();
}

TEST(VerifyContents, PassesASoundCheckpoint) {
  EXPECT_THAT(findings_of(test::make_tiny_checkpoint({})), IsEmpty());
}

TEST(VerifyContents, FindsNanScalesButAllowsAnyWeightByte) {
  test::TinyCheckpoint checkpoint = test::make_tiny_checkpoint({});
  checkpoint.at(std::string(kExpertName) + "packed").data[5] = '\xff';
  EXPECT_THAT(findings_of(checkpoint), IsEmpty());
  checkpoint.at(std::string(kExpertName) + "scale").data[5] = '\xff';
  EXPECT_THAT(findings_of(checkpoint),
              ElementsAre(AllOf(HasSubstr("model-00003-of-00006.safetensors"),
                                HasSubstr(std::string(kExpertName) + "scale"),
                                HasSubstr("value 5 is scale 255"))));
}

TEST(VerifyContents, FindsValuesThatAreNotFinite) {
  test::TinyCheckpoint checkpoint = test::make_tiny_checkpoint({});
  const std::string bf16 = "language_model.model.layers.1.self_attn.q_proj.weight";
  const std::string f32 = "language_model.model.layers.1.self_attn.dt_bias";
  const std::uint16_t negative_infinity = 0xff80;
  std::memcpy(checkpoint.at(bf16).data.data() + 2 * 7, &negative_infinity, 2);
  const std::uint32_t nan = 0x7fc00001;
  std::memcpy(checkpoint.at(f32).data.data() + 4 * 3, &nan, 4);
  EXPECT_THAT(findings_of(checkpoint),
              ElementsAre(AllOf(HasSubstr(f32), HasSubstr("value 3 is not finite")),
                          AllOf(HasSubstr(bf16), HasSubstr("value 7 is not finite"))));
}

TEST(VerifyContents, AllowsTheLargestFiniteValues) {
  test::TinyCheckpoint checkpoint = test::make_tiny_checkpoint({});
  const std::uint16_t largest = 0x7f7f;
  std::memcpy(checkpoint.at("language_model.model.norm.weight").data.data(), &largest, 2);
  EXPECT_THAT(findings_of(checkpoint), IsEmpty());
}

TEST(VerifyContents, ReadsAnExpertWithAChecksumOnceAndChecksItsScalesToo) {
  test::TinyCheckpoint tiny = test::make_tiny_checkpoint({});
  tiny.at(std::string(kExpertName) + "scale").data[5] = '\xff';
  const test::TempDir dir;
  write_tiny_checkpoint(tiny, dir.path());
  const Checkpoint checkpoint = Checkpoint::open(dir.path(), {}).value();
  const ExpertIndex index = build_expert_index(checkpoint, true, {}).value();

  std::uint64_t total = 0;
  ContentsCheck check([&](std::uint64_t, std::uint64_t all) { total = all; });
  check.check_tensors(checkpoint, nullptr);
  const std::uint64_t everything = total;
  const std::vector<std::string> alone = check.findings();
  ASSERT_EQ(alone.size(), 1u);

  ContentsCheck both([&](std::uint64_t, std::uint64_t all) { total = all; });
  both.check_tensors(checkpoint, &index);
  const std::uint64_t trunk = total;
  both.check_experts(checkpoint, index);
  EXPECT_EQ(trunk + total, everything);
  EXPECT_EQ(both.findings(), alone);
}

TEST(VerifyContents, FindsAnExpertThatDoesNotMatchItsChecksum) {
  const test::TempDir dir;
  write_tiny_checkpoint(test::make_tiny_checkpoint({}), dir.path());
  const Checkpoint checkpoint = Checkpoint::open(dir.path(), {}).value();
  ExpertIndex index = build_expert_index(checkpoint, true, {}).value();
  *index.locations[10].checksum ^= 1;
  ContentsCheck check([](std::uint64_t, std::uint64_t) {});
  check.check_experts(checkpoint, index);
  EXPECT_THAT(check.findings(), ElementsAre(HasSubstr("layer 1 expert 10: checksum")));
}

}  // namespace
}  // namespace k3::cli
