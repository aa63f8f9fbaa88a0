// Memory limits read from made-up /proc and /sys trees, and the refusal of plans that do not fit.
#include "common/observe/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

namespace k3 {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kMemInfo =
    "MemTotal:       16000000 kB\nMemFree:          100000 kB\nMemAvailable:    2000000 kB\n";

class MemoryLimitsTest : public testing::Test {
 protected:
  MemoryLimitsTest() {
    std::string name = testing::TempDir() + "k3-memory-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << name;
    root_ = name;
    write("proc/meminfo", kMemInfo);
  }
  ~MemoryLimitsTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, std::string_view content) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << content;
  }

  void version1(const std::string& group, std::string_view limit, std::string_view usage) {
    write("sys/fs/cgroup/memory/" + group + "/memory.limit_in_bytes", limit);
    write("sys/fs/cgroup/memory/" + group + "/memory.usage_in_bytes", usage);
  }

  void version2(const std::string& group, std::string_view limit, std::string_view usage) {
    write("sys/fs/cgroup/" + group + "/memory.max", limit);
    write("sys/fs/cgroup/" + group + "/memory.current", usage);
  }

  MemoryLimits limits() const { return read_memory_limits(root_); }

  std::filesystem::path root_;
};

TEST_F(MemoryLimitsTest, HostAlone) {
  EXPECT_EQ(limits().host_available_bytes, 2'048'000'000u);
  EXPECT_FALSE(limits().cgroup_free_bytes);
  EXPECT_EQ(limits().usable_bytes(), 2'048'000'000u);
}

TEST_F(MemoryLimitsTest, MissingOrZeroAvailableIsUnknown) {
  write("proc/meminfo", "MemTotal: 16000000 kB\n");
  EXPECT_FALSE(limits().host_available_bytes);
  EXPECT_FALSE(limits().usable_bytes());
  write("proc/meminfo", "MemAvailable: 0 kB\n");
  EXPECT_FALSE(limits().host_available_bytes);
  std::filesystem::remove(root_ / "proc/meminfo");
  EXPECT_FALSE(limits().usable_bytes());
}

TEST_F(MemoryLimitsTest, UnknownHostLeavesTheGroupsLimit) {
  write("proc/meminfo", "MemTotal: 16000000 kB\n");
  write("proc/self/cgroup", "0::/a\n");
  version2("a", "1000\n", "400\n");
  EXPECT_EQ(limits().usable_bytes(), 600u);
}

TEST_F(MemoryLimitsTest, Version2TakesTheSmallestUpTheTree) {
  write("proc/self/cgroup", "0::/user/session/app\n");
  version2("user", "5000\n", "4900\n");
  version2("user/session", "max\n", "10\n");
  version2("user/session/app", "1000\n", "400\n");
  EXPECT_EQ(limits().cgroup_free_bytes, 100u);
  EXPECT_EQ(limits().usable_bytes(), 100u);
}

TEST_F(MemoryLimitsTest, Version2WithoutAnyLimitIsUnknown) {
  write("proc/self/cgroup", "0::/a\n");
  version2("a", "max\n", "400\n");
  EXPECT_FALSE(limits().cgroup_free_bytes);
}

TEST_F(MemoryLimitsTest, Version2OfANamespaceLiesAtTheMount) {
  write("proc/self/cgroup", "0::/\n");
  version2(".", "3000\n", "1000\n");
  EXPECT_EQ(limits().cgroup_free_bytes, 2000u);
  write("proc/self/cgroup", "0::/../../other\n");
  EXPECT_EQ(limits().cgroup_free_bytes, 2000u);
}

TEST_F(MemoryLimitsTest, Version1AmongOtherControllers) {
  write("proc/self/cgroup",
        "9:name=systemd:/\n5:cpu,cpuacct:/b\n4:hugetlb,memory:/docker/abc\n0::/\n");
  version1("docker", "9000\n", "100\n");
  version1("docker/abc", "1000\n", "250\n");
  EXPECT_EQ(limits().cgroup_free_bytes, 750u);
}

TEST_F(MemoryLimitsTest, Version1PathOutsideTheContainerUsesTheMount) {
  write("proc/self/cgroup", "4:memory:/docker/abc\n");
  version1(".", "1000\n", "300\n");
  EXPECT_EQ(limits().cgroup_free_bytes, 700u);
}

TEST_F(MemoryLimitsTest, Version1HugeNumberMeansNoLimit) {
  write("proc/self/cgroup", "4:memory:/a\n");
  version1("a", "9223372036854771712\n", "300\n");
  EXPECT_FALSE(limits().cgroup_free_bytes);
}

TEST_F(MemoryLimitsTest, UsageAboveTheLimitLeavesNothing) {
  write("proc/self/cgroup", "0::/a\n");
  version2("a", "1000\n", "1200\n");
  EXPECT_EQ(limits().cgroup_free_bytes, 0u);
}

TEST_F(MemoryLimitsTest, CachedFilesGiveWay) {
  write("proc/self/cgroup", "0::/a\n4:memory:/b\n");
  version2("a", "1000\n", "900\n");
  write("sys/fs/cgroup/a/memory.stat", "anon 100\nfile 800\ninactive_file 500\nactive_file 200\n");
  EXPECT_EQ(limits().cgroup_free_bytes, 800u);
  version1("b", "1000\n", "900\n");
  write("sys/fs/cgroup/memory/b/memory.stat",
        "inactive_file 1\ntotal_inactive_file 300\ntotal_active_file 0\n");
  EXPECT_EQ(limits().cgroup_free_bytes, 400u);
}

TEST_F(MemoryLimitsTest, GarbageIsUnknown) {
  write("proc/self/cgroup", "nonsense\n4:memory\n");
  write("proc/meminfo", "MemAvailable: plenty\n");
  EXPECT_FALSE(limits().usable_bytes());
}

TEST(ProportionalSet, CountsTouchedPagesAndKnowsTheDead) {
  constexpr std::size_t kBytes = 64u << 20;
  const auto before = proportional_set_bytes(static_cast<std::uint32_t>(::getpid()));
  ASSERT_TRUE(before);
  void* pages = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  std::memset(pages, 1, kBytes);
  EXPECT_GE(proportional_set_bytes(static_cast<std::uint32_t>(::getpid())), *before + kBytes / 2);
  ::munmap(pages, kBytes);
  EXPECT_FALSE(proportional_set_bytes(0));
}

const std::vector<PlannedMemory> kPlan = {{"trunk ring", 600'000'000},
                                          {"expert cache", 500'000'000}};

TEST(CheckPlan, PassesWhatFitsAndWhatIsUnknown) {
  EXPECT_TRUE(check_plan(kPlan, {}));
  EXPECT_TRUE(check_plan(kPlan, {.host_available_bytes = 1'100'000'000, .cgroup_free_bytes = {}}));
}

TEST(CheckPlan, RefusalShowsEveryLineAndBothNumbers) {
  const Status status = check_plan(
      kPlan, {.host_available_bytes = 9'000'000'000, .cgroup_free_bytes = 1'099'900'000});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kFailed);
  EXPECT_THAT(status.error().message,
              AllOf(HasSubstr("trunk ring 600.0 MB"), HasSubstr("expert cache 500.0 MB"),
                    HasSubstr("1100.0 MB planned"), HasSubstr("1099.9 MB usable"),
                    HasSubstr("host 9000.0 MB")));
}

TEST(CheckPlan, AbsurdPlanDoesNotWrapAround) {
  const std::vector<PlannedMemory> plan = {{"a", ~std::uint64_t{0}}, {"b", 2}};
  EXPECT_FALSE(check_plan(plan, {.host_available_bytes = 1'000'000, .cgroup_free_bytes = {}}));
}

}  // namespace
}  // namespace k3
