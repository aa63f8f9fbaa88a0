#include "tools/k3/run_plan.h"

#include <gmock/gmock.h>

namespace k3::cli {
namespace {

using ::testing::HasSubstr;

// The released model's numbers.
ModelConfig released() {
  ModelConfig config;
  config.hidden = 7168;
  config.layers = 93;
  config.vocab = 163840;
  config.kda_heads = 96;
  config.kda_head_dim = 128;
  config.conv_taps = 4;
  config.mla_heads = 96;
  config.q_rank = 1536;
  config.kv_rank = 512;
  config.nope_dim = 128;
  config.rope_dim = 64;
  config.v_dim = 128;
  config.experts = 896;
  config.top_k = 16;
  config.shared_experts = 2;
  config.latent = 3584;
  config.expert_width = 3072;
  config.dense_layers = 1;
  config.dense_width = 33792;
  config.residual_block = 12;
  for (int layer = 1; layer <= 93; ++layer) {
    config.attention.push_back(layer % 4 == 0 || layer == 93 ? Attention::kMla : Attention::kKda);
  }
  return config;
}

PlanInputs released_inputs() {
  PlanInputs inputs;
  inputs.config = released();
  inputs.trunk_units = 450;
  inputs.trunk_slot_bytes = 256'000'000;
  inputs.trunk_pass_bytes = 111'160'000'000;
  inputs.experts = 82'432;
  inputs.expert_slot_bytes = 17'547'264;
  inputs.positions = 4096;
  return inputs;
}

MemoryLimits usable(std::uint64_t bytes) { return {bytes, std::nullopt}; }

std::uint64_t line(const RunPlan& plan, const std::string& what) {
  for (const PlannedMemory& each : plan.lines) {
    if (each.what == what) return each.bytes;
  }
  ADD_FAILURE() << what;
  return 0;
}

TEST(PlanRun, AutomaticBudgetsAreNeverRefused) {  // C31
  for (std::uint64_t gigabytes = 7; gigabytes < 2000; gigabytes = gigabytes * 3 / 2) {
    const MemoryLimits limits = usable(gigabytes * 1'000'000'000);
    const RunPlan plan = plan_run(released_inputs(), limits).value();
    EXPECT_TRUE(check_plan(plan.lines, limits)) << gigabytes;
    EXPECT_LE(planned_bytes(plan.lines), gigabytes * 1'000'000'000 / 100 * 80) << gigabytes;
  }
}

TEST(PlanRun, LeavesTheExpertsOneLayersDemand) {
  const RunPlan plan = plan_run(released_inputs(), usable(64'000'000'000)).value();
  EXPECT_GE(line(plan, "experts"), 16u * 17'547'264);
  EXPECT_GT(line(plan, "trunk"), 40'000'000'000u);
}

TEST(PlanRun, CapsBothAtWhatThereIs) {
  const RunPlan plan = plan_run(released_inputs(), usable(4'000'000'000'000)).value();
  EXPECT_EQ(line(plan, "trunk"), 450ull * 256'000'000);
  EXPECT_EQ(line(plan, "experts"), 82'432ull * 17'547'264);
}

TEST(PlanRun, CountsWholeSlotsOfAGivenBudget) {
  PlanInputs inputs = released_inputs();
  inputs.trunk_budget = 600'000'000;
  inputs.expert_budget = 20'000'000;
  const RunPlan plan = plan_run(inputs, usable(16'000'000'000)).value();
  EXPECT_EQ(plan.trunk_budget, 600'000'000u);
  EXPECT_EQ(line(plan, "trunk"), 512'000'000u);
  EXPECT_EQ(line(plan, "experts"), 17'547'264u);
}

TEST(PlanRun, RefusesABudgetBelowOneUnitOrExpertWithBothNumbers) {
  PlanInputs inputs = released_inputs();
  inputs.trunk_budget = 1'000'000;
  const auto trunk = plan_run(inputs, usable(16'000'000'000));
  ASSERT_FALSE(trunk);
  EXPECT_EQ(trunk.error().code, ErrorCode::kUsage);
  EXPECT_THAT(trunk.error().message, HasSubstr("1000000"));
  EXPECT_THAT(trunk.error().message, HasSubstr("256000000"));
  inputs.trunk_budget.reset();
  inputs.expert_budget = 1000;
  const auto experts = plan_run(inputs, usable(16'000'000'000));
  ASSERT_FALSE(experts);
  EXPECT_THAT(experts.error().message, HasSubstr("17547264"));
}

TEST(PlanRun, TooLittleMemoryIsLeftToTheRefusal) {
  const MemoryLimits limits = usable(500'000'000);
  const RunPlan plan = plan_run(released_inputs(), limits).value();
  EXPECT_EQ(plan.trunk_budget, 256'000'000u);
  EXPECT_EQ(plan.expert_budget, 17'547'264u);
  EXPECT_FALSE(check_plan(plan.lines, limits));
}

TEST(PlanRun, FloorOfTheReleasedModelIsBelowTwoAndAHalfGigabytes) {
  PlanInputs inputs = released_inputs();
  inputs.preset = Preset::kFloor;
  const RunPlan plan = plan_run(inputs, usable(100'000'000'000)).value();
  EXPECT_EQ(plan.trunk_budget, 4u * 256'000'000);
  EXPECT_EQ(plan.expert_budget, 16u * 17'547'264);
  EXPECT_LT(planned_bytes(plan.lines), 2'500'000'000u);
}

TEST(PlanRun, EverySizedPresetStaysBelowItsSizeAndIsRefusedWithoutTheMemory) {
  const std::vector<std::pair<Preset, std::uint64_t>> sizes = {{Preset::kLaptop, 8},
                                                               {Preset::kDesktop, 32},
                                                               {Preset::kWorkstation, 96},
                                                               {Preset::kServer, 128}};
  PlanInputs inputs = released_inputs();
  std::uint64_t before = ~std::uint64_t{0};
  for (const auto& [preset, gigabytes] : sizes) {
    inputs.preset = preset;
    const std::uint64_t size = gigabytes * 1'000'000'000;
    const RunPlan plan = plan_run(inputs, usable(size)).value();
    EXPECT_LE(planned_bytes(plan.lines), size);
    EXPECT_GT(planned_bytes(plan.lines), size / 10 * 9);
    EXPECT_TRUE(check_plan(plan.lines, usable(size))) << gigabytes;
    EXPECT_FALSE(check_plan(plan.lines, usable(size / 2))) << gigabytes;
    EXPECT_LT(token_bytes(inputs, plan), before) << gigabytes;
    before = token_bytes(inputs, plan);
  }
}

TEST(PlanRun, TokenBytesAreWhatIsNotResident) {
  PlanInputs inputs = released_inputs();
  inputs.trunk_pass_bytes = 450ull * 200'000'000;
  inputs.trunk_budget = 229ull * 256'000'000;  // half the units pinned beside the ring
  inputs.expert_budget = 41'216ull * 17'547'264;
  const RunPlan half = plan_run(inputs, usable(1'000'000'000'000)).value();
  EXPECT_NEAR(static_cast<double>(token_bytes(inputs, half)),
              225 * 200e6 + 0.5 * 16 * 92 * 17'547'264, 2);
  inputs.trunk_budget = 450ull * 256'000'000;
  inputs.expert_budget = 82'432ull * 17'547'264;
  EXPECT_EQ(token_bytes(inputs, plan_run(inputs, {}).value()), 0u);
}

TEST(PlanRun, TableOfPresetsNamesAllAndWhatDoesNotFit) {
  const std::string text = presets_text(released_inputs(), usable(40'000'000'000), 2.0);
  for (const NamedPreset& named : kPresets) {
    EXPECT_THAT(text, HasSubstr("\n" + std::string(named.name) + " ")) << named.name;
  }
  EXPECT_THAT(text, HasSubstr("s/token"));
  const std::string server = text.substr(text.find("\nserver"));
  EXPECT_THAT(server.substr(0, server.find('\n', 1)), HasSubstr("does not fit"));
  const std::string desktop = text.substr(text.find("\ndesktop"));
  EXPECT_THAT(desktop.substr(0, desktop.find('\n', 1)), ::testing::Not(HasSubstr("does not fit")));
}

TEST(PlanRun, LimitsThatCannotBeReadAreCalledUnknown) {
  EXPECT_EQ(limits_text({2'000'000'000, std::nullopt}),
            "memory free: host 2.000 GB, control groups unknown\n");
  EXPECT_EQ(limits_text({std::nullopt, 5'000'000}),
            "memory free: host unknown, control groups 5.000 MB\n");
  EXPECT_THAT(plan_text(plan_run(released_inputs(), {}).value(), {}), HasSubstr("of unknown usable"));
}

TEST(PlanRun, UnknownLimitsAreNotZero) {  // C30
  PlanInputs inputs = released_inputs();
  inputs.positions = 100;
  const RunPlan plan = plan_run(inputs, {}).value();
  EXPECT_GT(plan.trunk_budget, 256'000'000u);
  EXPECT_TRUE(check_plan(plan.lines, {}));
}

}  // namespace
}  // namespace k3::cli
