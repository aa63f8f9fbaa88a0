// Private pipelines, signs of failure, counters over restarts, peak memory.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "tests/unit/support/process.h"
#include "tests/unit/support/temp_dir.h"
#include "tools/k3/pipeline_failure.h"
#include "tools/k3/pipeline_memory.h"
#include "tools/k3/pipeline_private.h"
#include "tools/k3/pipeline_stats.h"

namespace k3::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string text_of(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(PipelineFailure, QuietRunDirectoryHasNone) {
  const test::TempDir dir;
  EXPECT_FALSE(pipeline_failure(dir.path()));
}

TEST(PipelineFailure, GivesCodeAndReasonOfAStage) {
  const test::TempDir dir;
  std::ofstream(dir.path() / "experts.failed") << "4\nexited with code 4: shard 3 is short\n";
  const auto failure = pipeline_failure(dir.path());
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::kWeights);
  EXPECT_THAT(failure->message, HasSubstr("experts: exited with code 4: shard 3 is short"));
}

TEST(PipelineFailure, AnUnknownCodeIsAPlainFailure) {
  const test::TempDir dir;
  std::ofstream(dir.path() / "trunk.failed") << "139\ndied\n";
  EXPECT_EQ(pipeline_failure(dir.path())->code, ErrorCode::kFailed);
}

std::string write_configuration(const std::filesystem::path& run_dir) {
  const std::filesystem::path path = run_dir / "supervisord.conf";
  std::ofstream(path) << "";
  return path.string();
}

// A process that goes on and, as supervisord, has the configuration of `run_dir` among its words;
// the run directory names it.
class FakeSupervisor {
 public:
  explicit FakeSupervisor(const std::filesystem::path& run_dir)
      : process_("/usr/bin/tail", {"-f", write_configuration(run_dir)}) {
    std::ofstream(run_dir / "supervisord.pid") << process_.pid() << "\n";
    // A process that has just been started may have no command line yet.
    const std::string words = fmt::format("/proc/{}/cmdline", process_.pid());
    while (text_of(words).find("supervisord.conf") == std::string::npos) sched_yield();
  }
  test::Process& process() { return process_; }

 private:
  test::Process process_;
};

TEST(PipelineFailure, NoticesThatTheRunDirectoryIsGone) {
  const test::TempDir dir;
  EXPECT_TRUE(pipeline_failure(dir.path() / "absent"));
}

TEST(PipelineFailure, NoticesThatTheSupervisorIsGone) {
  const test::TempDir dir;
  FakeSupervisor supervisor(dir.path());
  const std::string pid = std::to_string(supervisor.process().pid());
  EXPECT_FALSE(pipeline_failure(dir.path()));
  supervisor.process().signal(SIGKILL);
  supervisor.process().wait();
  const auto failure = pipeline_failure(dir.path());
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::kFailed);
  EXPECT_THAT(failure->message, HasSubstr("supervisor has gone"));
  EXPECT_THAT(failure->message, HasSubstr(pid));
}

TEST(PipelineFailure, ASupervisorNobodyHasWaitedForIsGone) {
  const test::TempDir dir;
  FakeSupervisor supervisor(dir.path());
  supervisor.process().signal(SIGKILL);
  siginfo_t info;
  const auto pid = static_cast<id_t>(supervisor.process().pid());
  ASSERT_EQ(waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(pipeline_failure(dir.path()));
}

TEST(PipelineFailure, AnotherProcessWithThePidOfTheSupervisorIsNotTakenForIt) {
  const test::TempDir dir;
  const test::TempDir other;
  const FakeSupervisor supervisor(other.path());
  std::filesystem::copy(other.path(), dir.path());
  EXPECT_TRUE(pipeline_failure(dir.path()));
  EXPECT_FALSE(pipeline_failure(other.path()));
}

TEST(PipelineFailure, TheRunDirectoryMayBeSpelledInAnyWay) {
  const test::TempDir dir;
  std::filesystem::create_directory(dir.path() / "run");
  std::filesystem::create_directory_symlink("run", dir.path() / "link");
  const FakeSupervisor supervisor(dir.path() / "run");
  for (const char* spelled : {"run", "run/", "./run", "run/../run", "link"}) {
    EXPECT_FALSE(pipeline_failure(dir.path() / spelled)) << spelled;
  }
}

TEST(CheckPipeline, AcceptsAYoungOneAndOneStartedByHand) {
  for (const char* file : {"restart.json", "trunk.life"}) {
    const test::TempDir dir;
    EXPECT_FALSE(check_pipeline(dir.path()));
    std::ofstream(dir.path() / file) << "";
    EXPECT_TRUE(check_pipeline(dir.path())) << file;
  }
}

TEST(CheckPipeline, RefusesAnotherFolderByName) {
  const test::TempDir dir;
  for (const auto& path : {dir.path(), dir.path() / "absent"}) {
    const Status status = check_pipeline(path);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kUsage);
    EXPECT_THAT(status.error().message, HasSubstr(path.string()));
  }
}

// A supervisor script that notes how it was called and whether signals reach it.
class PrivatePipelineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_script("exit 0");
    setenv("XDG_RUNTIME_DIR", dir_.path().c_str(), 1);
    setenv("K3_LAUNCH_DIR", dir_.path().c_str(), 1);
  }
  void TearDown() override {
    unsetenv("XDG_RUNTIME_DIR");
    unsetenv("K3_LAUNCH_DIR");
  }
  void write_script(const std::string& end) {
    const auto path = dir_.path() / "k3-pipeline";
    std::ofstream(path) << "#!/bin/sh\nfor word in \"$@\"; do echo \"[$word]\"; done >> '"
                        << (dir_.path() / "calls").string()
                        << "'\ngrep SigBlk /proc/self/status > '"
                        << (dir_.path() / "signals").string() << "'\n"
                        << end << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  std::size_t run_dirs() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      if (entry.path().filename().string().starts_with("k3-") && entry.is_directory()) ++count;
    }
    return count;
  }

  test::TempDir dir_;
};

TEST_F(PrivatePipelineTest, StartsInAFreshDirectoryAndLeavesNothing) {
  const auto script = find_supervisor_script().value();
  std::filesystem::path run_dir;
  {
    const auto pipeline =
        PrivatePipeline::start(script, {{"model", "/a b/%c"}, {"trunk_gb", "1"}}).value();
    run_dir = pipeline.run_dir();
    EXPECT_EQ(run_dir.parent_path(), dir_.path());
    EXPECT_EQ(std::filesystem::status(run_dir).permissions(), std::filesystem::perms::owner_all);
    const std::string calls = text_of(dir_.path() / "calls");
    EXPECT_THAT(calls, StartsWith("[start]\n[--run]\n[" + run_dir.string() + "]\n[--parent]\n[" +
                                  std::to_string(getpid()) + "]\n"));
    EXPECT_THAT(calls, HasSubstr("[--set]\n[model=/a b/%c]\n[--set]\n[trunk_gb=1]\n"));
  }
  EXPECT_THAT(text_of(dir_.path() / "calls"), HasSubstr("[stop]\n[--run]\n[" + run_dir.string()));
  EXPECT_EQ(run_dirs(), 0u);
}

TEST_F(PrivatePipelineTest, TheSupervisorIsNotDeafToSignals) {
  sigset_t signals, before;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, &before);
  const auto pipeline = PrivatePipeline::start(find_supervisor_script().value(), {});
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(pipeline);
  EXPECT_THAT(text_of(dir_.path() / "signals"), HasSubstr("0000000000000000"));
}

TEST_F(PrivatePipelineTest, AFailedStartIsCleanedUp) {
  write_script("[ \"$1\" = stop ] || exit 2");
  const auto pipeline = PrivatePipeline::start(find_supervisor_script().value(), {});
  ASSERT_FALSE(pipeline);
  EXPECT_EQ(pipeline.error().code, ErrorCode::kUsage);
  EXPECT_EQ(run_dirs(), 0u);
}

TEST_F(PrivatePipelineTest, AFailedStopIsReportedAndCleanedUp) {
  write_script("[ \"$1\" = start ] || exit 1");
  auto pipeline = PrivatePipeline::start(find_supervisor_script().value(), {}).value();
  EXPECT_FALSE(pipeline.stop());
  EXPECT_EQ(run_dirs(), 0u);
  EXPECT_TRUE(pipeline.stop());
}

TEST_F(PrivatePipelineTest, AnAbsentScriptIsNamed) {
  setenv("K3_LAUNCH_DIR", "/absent", 1);
  const auto script = find_supervisor_script();
  ASSERT_FALSE(script);
  EXPECT_THAT(script.error().message, HasSubstr("/absent/k3-pipeline"));
}

TEST(StatsLedger, AddsUpOverRestarts) {
  StatsLedger ledger;
  ledger.record(1, {{{"hits", 10}, {"misses", 1}}});
  ledger.record(1, {{{"hits", 15}, {"misses", 2}}});
  ledger.record(2, {{{"hits", 3}}});
  EXPECT_EQ(ledger.total("hits"), 18u);
  EXPECT_EQ(ledger.total("misses"), 2u);
  EXPECT_EQ(ledger.total("absent"), 0u);
}

TEST(StatsLedger, CountsFromWhereItStarts) {
  StatsLedger ledger;
  ledger.record(1, {{{"hits", 100}}});
  ledger.start_here();
  EXPECT_EQ(ledger.total("hits"), 0u);
  ledger.record(1, {{{"hits", 104}}});
  ledger.record(2, {{{"hits", 7}}});
  EXPECT_EQ(ledger.total("hits"), 11u);
}

TEST(PeakMemory, CountsThisProcessAndOthers) {
  PeakMemory memory;
  const std::uint64_t alone = memory.peak_bytes();
  EXPECT_GT(alone, 1u << 20);
  // A child that holds 32 MiB of its own until it is told to go.
  int ready[2], go[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    constexpr std::size_t kBytes = 32u << 20;
    void* block = std::malloc(kBytes);
    std::memset(block, 1, kBytes);
    char byte = 0;
    if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1) _exit(1);
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  memory.watch("trunk", static_cast<std::uint32_t>(child));
  EXPECT_GE(memory.peak_bytes(), alone + (30u << 20));
  ASSERT_EQ(write(go[1], &byte, 1), 1);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_GE(memory.peak_bytes(), alone + (30u << 20));  // the largest sum stays
}

}  // namespace
}  // namespace k3::cli
