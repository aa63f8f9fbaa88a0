// Injected faults: which labels they hit, and that a typing error is never silently "no fault".
#include "common/storage/read_faults.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <vector>

#include "tests/unit/common/storage/temporary_folder.h"

namespace k3 {
namespace {

class ReadFaultsTest : public testing::Test {
 protected:
  ~ReadFaultsTest() override { ::unsetenv("K3_READ_FAULTS"); }

  ReadFaults with(std::string_view content) {
    const auto file = folder_.write("faults", content);
    ::setenv("K3_READ_FAULTS", file.c_str(), 1);
    return ReadFaults::from_environment().value();
  }

  test::TemporaryFolder folder_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(9);
};

TEST_F(ReadFaultsTest, UnsetMeansNothing) {
  ::unsetenv("K3_READ_FAULTS");
  EXPECT_FALSE(ReadFaults::from_environment());
}

TEST_F(ReadFaultsTest, AbsentFileMeansNoFaults) {
  const ReadFaults faults = with("error layer\n");
  std::filesystem::remove(folder_.path() / "faults");
  EXPECT_TRUE(faults.apply("layer 3", bytes_));
}

TEST_F(ReadFaultsTest, ErrorHitsLabelsThatContainTheText) {
  const ReadFaults faults = with("error layer 3 expert 17\n");
  EXPECT_TRUE(faults.apply("layer 3 expert 16", bytes_));
  const Status status = faults.apply("layer 3 expert 17", bytes_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kWeights);
}

TEST_F(ReadFaultsTest, CorruptChangesExactlyOneByte) {
  ASSERT_TRUE(with("corrupt unit 5").apply("unit 5", bytes_));
  EXPECT_EQ(std::count(bytes_.begin(), bytes_.end(), std::byte{0}), 8);
}

TEST_F(ReadFaultsTest, DelayTakesAtLeastItsTime) {
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(with("delay 20 unit").apply("unit 5", bytes_));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
}

TEST_F(ReadFaultsTest, FileIsReadAgainEachTime) {
  const ReadFaults faults = with("");
  EXPECT_TRUE(faults.apply("unit 5", bytes_));
  folder_.write("faults", "error unit 5");
  EXPECT_FALSE(faults.apply("unit 5", bytes_));
}

TEST_F(ReadFaultsTest, MalformedLineIsAnErrorNamingIt) {
  for (const char* line :
       {"eror unit", "error", "corrupt ", "delay unit", "delay 5", "delay -1 unit"}) {
    const Status status = with(line).apply("anything", bytes_);
    ASSERT_FALSE(status) << line;
    EXPECT_NE(status.error().message.find(line), std::string::npos) << status.error().message;
  }
}

}  // namespace
}  // namespace k3
