// k3 status over a pipeline of fakes.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/unit/tools/k3/fake_pipeline.h"
#include "tools/k3/commands.h"
#include "tools/k3/pipeline_link.h"

namespace k3::cli {
namespace {

using test::FakePipeline;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class StatusCommand : public ::testing::Test {
 protected:
  Status run(const std::filesystem::path& run_dir, std::vector<std::string> flags = {}) {
    CLI::App root("test", "k3");
    Action action;
    add_status(root, action);
    flags.insert(flags.begin(), {"status", "--pipeline", run_dir.string()});
    std::reverse(flags.begin(), flags.end());
    root.parse(flags);
    ::testing::internal::CaptureStdout();
    const Status status = action();
    out_ = ::testing::internal::GetCapturedStdout();
    return status;
  }
  std::string out_;
};

TEST_F(StatusCommand, ShowsEveryServiceThatIsUp) {
  FakePipeline pipeline;
  const auto up = PipelineLink::create({.run_dir = pipeline.run_dir()}).value();
  ASSERT_TRUE(up->wait_until_up());
  ASSERT_TRUE(run(pipeline.run_dir(), {"--json"}));
  const Json json = Json::parse(out_);
  ASSERT_EQ(json["services"].size(), 4u);
  for (const Json& service : json["services"]) {
    EXPECT_EQ(service["up"], true);
    EXPECT_EQ(service["pid"], getpid());
    EXPECT_GT(service["memory_bytes"].get<std::uint64_t>(), 0u);
    EXPECT_EQ(service["counters"]["hits"], 10);
    EXPECT_NE(service["description"], "");
  }
  EXPECT_EQ(json["services"][3]["fingerprint"], test::kFakeFingerprint);
  ASSERT_TRUE(run(pipeline.run_dir()));
  EXPECT_THAT(out_, HasSubstr("compute    up"));
  EXPECT_THAT(out_, HasSubstr("2 of 7 layers"));
}

TEST_F(StatusCommand, NamesWhatIsDown) {
  const test::TempDir dir;
  std::ofstream(dir.path() / "restart.json") << "{}";  // as a pipeline that has just started
  const Status status = run(dir.path());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kFailed);
  for (const char* name : {"tokenizer", "trunk", "experts", "compute"}) {
    EXPECT_THAT(status.error().message, HasSubstr(name));
    EXPECT_THAT(out_, HasSubstr(name));
  }
}

TEST_F(StatusCommand, RefusesAFolderWithoutAPipeline) {
  const test::TempDir dir;
  const Status status = run(dir.path());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUsage);
  EXPECT_THAT(status.error().message, HasSubstr(dir.path().string()));
}

}  // namespace
}  // namespace k3::cli
