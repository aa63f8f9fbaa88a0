// The logits file of k3 run and k3 compare-logits.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/support/temp_dir.h"
#include "tools/k3/commands.h"
#include "tools/k3/run_logits.h"

namespace k3::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> read_floats(const std::filesystem::path& path) {
  std::vector<float> values(std::filesystem::file_size(path) / sizeof(float));
  std::ifstream(path, std::ios::binary)
      .read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

void write_floats(const std::filesystem::path& path, const std::vector<float>& values) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
}

TEST(LogitsFile, WritesEachPositionOnce) {
  const test::TempDir dir;
  LogitsFile file(dir.path() / "l", 3, 2);
  const std::vector<float> a = {1, 2}, b = {3, 4}, again = {9, 9};
  file.add(2, again);
  file.add(3, a);
  file.add(3, again);
  file.add(4, b);
  ASSERT_TRUE(file.finish());
  EXPECT_THAT(read_floats(dir.path() / "l"), ElementsAre(1, 2, 3, 4));
}

TEST(LogitsFile, ReportsAGapAndAWrongWidth) {
  const test::TempDir dir;
  const std::vector<float> row = {1, 2}, narrow = {1};
  LogitsFile gap(dir.path() / "gap", 0, 2);
  gap.add(1, row);
  EXPECT_THAT(gap.finish().error().message, HasSubstr("position 1"));
  LogitsFile width(dir.path() / "width", 0, 2);
  width.add(0, narrow);
  EXPECT_EQ(width.finish().error().code, ErrorCode::kFailed);
}

TEST(LogitsFile, KeepsAWriteErrorForTheEnd) {  // C18
  const std::vector<float> row(1 << 16, 1.0f);
  for (const char* path : {"/dev/full", "/absent/l.f32"}) {
    LogitsFile file(path, 0, 1 << 16);
    file.add(0, row);
    file.add(1, row);
    const Status status = file.finish();
    ASSERT_FALSE(status) << path;
    EXPECT_EQ(status.error().code, ErrorCode::kOutput);
    EXPECT_THAT(status.error().message, HasSubstr(path));
  }
}

class CompareLogits : public ::testing::Test {
 protected:
  // Runs the command on two files; `printed` is its stdout.
  Status compare(const std::vector<float>& a, const std::vector<float>& b,
                 std::vector<std::string> flags = {}) {
    write_floats(dir_.path() / "a", a);
    write_floats(dir_.path() / "b", b);
    CLI::App root("test", "k3");
    Action action;
    add_compare_logits(root, action);
    flags.insert(flags.begin(),
                 {"compare-logits", (dir_.path() / "a").string(), (dir_.path() / "b").string()});
    std::reverse(flags.begin(), flags.end());
    root.parse(flags);
    ::testing::internal::CaptureStdout();
    const Status status = action();
    printed_ = ::testing::internal::GetCapturedStdout();
    return status;
  }

  test::TempDir dir_;
  std::string printed_;
};

TEST_F(CompareLogits, EqualFilesPass) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(compare({1, 2, nan}, {1, 2, nan}));
}

TEST_F(CompareLogits, FindsTheLargestDifferenceByRowAndId) {
  const Status status = compare({0, 1, 2, 3, 4, 5}, {0, 1, 2, 3.5, 6, 5}, {"--vocab", "3"});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kFailed);
  EXPECT_THAT(status.error().message, HasSubstr("2 of 6"));
  EXPECT_THAT(printed_, HasSubstr("rows 2, same argmax in 1"));
  EXPECT_THAT(printed_, HasSubstr("largest difference 2 in row 1 at id 1: 4 and 6"));
}

TEST_F(CompareLogits, ToleranceIsInclusive) {
  EXPECT_TRUE(compare({1, 2}, {1.5, 2}, {"--atol", "0.5"}));
  EXPECT_FALSE(compare({1, 2}, {1.5, 2}, {"--atol", "0.49"}));
}

TEST_F(CompareLogits, WithoutToleranceBitsCount) {
  EXPECT_FALSE(compare({0.0f}, {-0.0f}));
  EXPECT_TRUE(compare({0.0f}, {-0.0f}, {"--atol", "1e-9"}));
  EXPECT_FALSE(compare({1.0f}, {std::nextafter(1.0f, 2.0f)}));
}

TEST_F(CompareLogits, NanAgainstANumberIsNeverWithinTolerance) {
  EXPECT_FALSE(compare({std::numeric_limits<float>::quiet_NaN()}, {1}, {"--atol", "1000"}));
}

TEST_F(CompareLogits, NamesBothSizes) {
  const Status status = compare({1, 2}, {1, 2, 3});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kFailed);
  EXPECT_THAT(status.error().message, HasSubstr("8 bytes"));
  EXPECT_THAT(status.error().message, HasSubstr("12"));
  EXPECT_FALSE(compare({1, 2}, {1, 2}, {"--vocab", "3"}));
  EXPECT_FALSE(compare({}, {}));
}

}  // namespace
}  // namespace k3::cli
