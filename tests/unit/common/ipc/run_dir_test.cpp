// Endpoint names, the run directory's rules, the lock.
#include "common/ipc/run_dir.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/unit/common/ipc/support.h"

namespace k3::ipc::test {
namespace {

using testing::HasSubstr;

TEST(RunDir, NamesTheFilesOfAService) {
  const Result<Endpoint> endpoint = endpoint_in("/run/k3", "trunk");
  ASSERT_TRUE(endpoint);
  EXPECT_EQ(endpoint->zmq_address(), "ipc:///run/k3/trunk.zmq");
  EXPECT_EQ(endpoint->lifeline_path, "/run/k3/trunk.life");
  EXPECT_EQ(endpoint->lock_path, "/run/k3/trunk.lock");
}

TEST(RunDir, RefusesAPathTooLongForASocketNamingBoth) {
  const std::string longest(107 - std::string("/trunk.life").size() - 1, 'x');
  EXPECT_TRUE(endpoint_in("/" + longest, "trunk"));
  const Result<Endpoint> endpoint = endpoint_in("/" + longest + "x", "trunk");
  ASSERT_FALSE(endpoint);
  EXPECT_EQ(endpoint.error().code, ErrorCode::kUsage);
  EXPECT_THAT(endpoint.error().message, HasSubstr(longest));
  EXPECT_THAT(endpoint.error().message, HasSubstr("108"));
  EXPECT_THAT(endpoint.error().message, HasSubstr("107"));
}

TEST(RunDir, RefusesWhatIsNoServiceName) {
  EXPECT_EQ(endpoint_in("/run/k3", "").error().code, ErrorCode::kUsage);
  EXPECT_EQ(endpoint_in("/run/k3", "../x").error().code, ErrorCode::kUsage);
}

TEST(RunDir, IsCreatedPrivate) {
  const TemporaryDir dir;
  const std::filesystem::path run = dir.path() / "run dir é";
  ASSERT_TRUE(prepare_run_dir(run));
  struct stat info {};
  ASSERT_EQ(::stat(run.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  EXPECT_TRUE(prepare_run_dir(run));  // and accepted again
}

TEST(RunDir, RefusesADirectoryOthersCanWrite) {
  const TemporaryDir dir;
  const std::filesystem::path run = dir.path() / "run";
  ASSERT_TRUE(prepare_run_dir(run));
  ASSERT_EQ(::chmod(run.c_str(), 0770), 0);
  const Status status = prepare_run_dir(run);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("0770"));
}

TEST(RunDir, RefusesADirectoryOfAnotherUser) {
  struct stat info {};
  const char* foreign = "/proc/1";
  if (::stat(foreign, &info) == 0 && info.st_uid == ::geteuid()) {
    const TemporaryDir dir;
    if (::chown(dir.path().c_str(), ::geteuid() + 1, static_cast<gid_t>(-1)) != 0) {
      GTEST_SKIP() << "needs a directory of another user";
    }
    EXPECT_EQ(prepare_run_dir(dir.path()).error().code, ErrorCode::kUsage);
    return;
  }
  EXPECT_EQ(prepare_run_dir(foreign).error().code, ErrorCode::kUsage);
}

TEST(RunDir, RefusesAFileAndAMissingParent) {
  const TemporaryDir dir;
  const std::filesystem::path file = dir.path() / "file";
  ASSERT_EQ(::mknod(file.c_str(), S_IFREG | 0600, 0), 0);
  EXPECT_EQ(prepare_run_dir(file).error().code, ErrorCode::kUsage);
  const Status status = prepare_run_dir(dir.path() / "missing" / "run");
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("missing/run"));
}

TEST(RunDir, LockIsHeldByOneAndNamesItsHolder) {
  const TemporaryDir dir;
  const Endpoint endpoint = endpoint_in(dir.path(), "trunk").value();
  {
    const Result<UniqueFd> lock = lock_endpoint(endpoint);
    ASSERT_TRUE(lock) << lock.error().message;
    const Result<UniqueFd> second = lock_endpoint(endpoint);
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().message, HasSubstr(endpoint.lock_path.string()));
    EXPECT_THAT(second.error().message, HasSubstr(std::to_string(::getpid())));
  }
  EXPECT_TRUE(lock_endpoint(endpoint));  // a left-over file does not matter
}

}  // namespace
}  // namespace k3::ipc::test
