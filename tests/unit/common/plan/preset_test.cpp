#include "common/plan/preset.h"

#include <gtest/gtest.h>

namespace k3 {
namespace {

TEST(Preset, SizesLieBelowTheirGigabytesWhateverIsUsable) {
  EXPECT_EQ(preset_bytes(Preset::kLaptop, std::nullopt), 7'600'000'000u);
  EXPECT_EQ(preset_bytes(Preset::kDesktop, 1'000'000'000), 30'400'000'000u);
  EXPECT_EQ(preset_bytes(Preset::kWorkstation, 500'000'000'000), 91'200'000'000u);
  EXPECT_EQ(preset_bytes(Preset::kServer, std::nullopt), 121'600'000'000u);
}

TEST(Preset, SharesFollowWhatIsUsable) {
  EXPECT_EQ(preset_bytes(Preset::kAuto, 10'000'000'000), 8'000'000'000u);
  EXPECT_EQ(preset_bytes(Preset::kMax, 10'000'000'000), 9'200'000'000u);
}

TEST(Preset, UnknownIsNotZero) {
  EXPECT_GT(preset_bytes(Preset::kAuto, std::nullopt), 1'000'000'000u);
  EXPECT_EQ(preset_bytes(Preset::kAuto, 0), 0u);
}

TEST(Preset, FloorFollowsFromTheModel) {
  EXPECT_FALSE(preset_bytes(Preset::kFloor, 10'000'000'000));
}

}  // namespace
}  // namespace k3
