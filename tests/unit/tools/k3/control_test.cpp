// k3 control over a pipeline of fakes.
#include <gmock/gmock.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/tools/k3/command.h"
#include "tests/unit/tools/k3/fake_pipeline.h"
#include "tools/k3/pipeline_link.h"

namespace k3::cli {
namespace {

using test::FakePipeline;
using ::testing::HasSubstr;

class ControlCommand : public ::testing::Test {
 protected:
  ~ControlCommand() override { (void)set_log_level("warn"); }

  Status run(const std::filesystem::path& run_dir, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"control", "--pipeline", run_dir.string()});
    ::testing::internal::CaptureStdout();
    Status status = test::run_command(add_control, std::move(arguments));
    out_ = ::testing::internal::GetCapturedStdout();
    return status;
  }
  std::string out_;
};

TEST_F(ControlCommand, SetsTheLogLevelOfEveryService) {
  FakePipeline pipeline;
  ASSERT_TRUE(PipelineLink::create({.run_dir = pipeline.run_dir()}).value()->wait_until_up());
  const Status status = run(pipeline.run_dir(), {"log-level", "error"});
  ASSERT_TRUE(status) << status.error().message;
  for (const char* line : {"tokenizer  log level error\n", "trunk      log level error\n",
                           "experts    log level error\n", "compute    log level error\n"}) {
    EXPECT_THAT(out_, HasSubstr(line));
  }
  EXPECT_EQ(spdlog::get_level(), spdlog::level::err);  // the fakes live in this process
}

TEST_F(ControlCommand, StopsTheOneStageThatIsNamed) {
  FakePipeline pipeline;
  const auto link = PipelineLink::create({.run_dir = pipeline.run_dir()}).value();
  ASSERT_TRUE(link->wait_until_up());
  const Status status = run(pipeline.run_dir(), {"--stage", "trunk", "stop"});
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(out_, "trunk      stopped\n");
  ASSERT_TRUE(link->wait([&] { return link->connections(Stage::kTrunk) == 2; }));
  EXPECT_EQ(link->losses(), 1u);
}

TEST_F(ControlCommand, NamesAServiceThatIsDown) {
  const test::TempDir dir;
  std::ofstream(dir.path() / "restart.json") << "{}";
  const Status status = run(dir.path(), {"--stage", "experts", "stop"});
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("experts: is down"));
  EXPECT_THAT(out_, HasSubstr("experts    is down"));
}

// What k3 control prints behind the name of the stage.
TEST(AskBriefly, TellsAStageThatWentDownFromOneThatDoesNotAnswer) {
  FakePipeline pipeline({.tokenizer_dies_at = {1}});
  const auto link = PipelineLink::create({.run_dir = pipeline.run_dir()}).value();
  ASSERT_TRUE(link->wait_until_up());
  const auto died = link->ask_briefly(Stage::kTokenizer, ipc::DescribeTokenizer{},
                                      std::chrono::milliseconds(60'000));
  ASSERT_FALSE(died);
  EXPECT_EQ(died.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(died.error().message, "went down");
  const auto silent = link->ask_briefly(Stage::kTrunk, ipc::DescribeExperts{},  // is not for it
                                        std::chrono::milliseconds(20));
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(silent.error().message, "does not answer within 20 ms");
}

TEST_F(ControlCommand, RefusesWhatItDoesNotKnow) {
  const test::TempDir dir;
  EXPECT_EQ(run(dir.path(), {"stop"}).error().code, ErrorCode::kUsage);  // no pipeline
  EXPECT_THROW(
      (void)test::run_command(add_control, {"control", "--pipeline", "x", "log-level", "loud"}),
      CLI::ParseError);
  EXPECT_THROW((void)test::run_command(add_control,
                                       {"control", "--pipeline", "x", "--stage", "gpu", "stop"}),
               CLI::ParseError);
  EXPECT_THROW((void)test::run_command(add_control, {"control", "--pipeline", "x"}),
               CLI::ParseError);
}

}  // namespace
}  // namespace k3::cli
