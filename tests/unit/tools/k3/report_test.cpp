#include "tools/k3/report.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/unit/support/temp_dir.h"

namespace k3::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

RunReport sample() {
  RunReport report;
  report.model = "/models/k3";
  report.fingerprint = "abc";
  report.layers = 93;
  report.model_layers = 93;
  report.isa = "avx2";
  report.threads = 2;
  report.prompt_ids = {1, 2, 3};
  report.generated_ids = {4, 5};
  report.text = "hi";
  report.finish_reason = "length";
  report.prefill_seconds = 1.5;
  report.seconds_per_token = 0.25;
  report.trunk_bytes_read = 100;
  report.experts_bytes_read = 200;
  report.hits = 1;
  report.prefetched = 2;
  report.misses = 3;
  report.restarts = 1;
  report.peak_memory_bytes = 12345;
  return report;
}

TEST(ReportJson, HoldsEveryField) {
  const Json json = Json::parse(report_json(sample()));
  EXPECT_EQ(json["prompt_ids"], Json({1, 2, 3}));
  EXPECT_EQ(json["generated_ids"], Json({4, 5}));
  EXPECT_EQ(json["text"], "hi");
  EXPECT_EQ(json["prefill_seconds"], 1.5);
  EXPECT_EQ(json["seconds_per_token"], 0.25);
  EXPECT_EQ(json["bytes_read"], Json({{"trunk", 100}, {"experts", 200}}));
  EXPECT_EQ(json["expert_requests"], Json({{"hits", 1}, {"prefetched", 2}, {"misses", 3}}));
  EXPECT_EQ(json["restarts"], 1);
  EXPECT_EQ(json["peak_memory_bytes"], 12345);
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["layers"], 93);
  EXPECT_EQ(json["model"], "/models/k3");
  EXPECT_EQ(json["isa"], "avx2");
  EXPECT_EQ(json["threads"], 2);
  EXPECT_EQ(json["budgets"], Json({{"trunk", 0}, {"experts", 0}}));
}

TEST(ReportJson, WhatIsAbsentOrNotFiniteIsNull) {  // C19
  RunReport report = sample();
  report.text.reset();
  report.model.reset();
  report.prefill_seconds = std::numeric_limits<double>::infinity();
  report.seconds_per_token = std::numeric_limits<double>::quiet_NaN();
  const Json json = Json::parse(report_json(report));
  for (const char* field : {"text", "model", "prefill_seconds", "seconds_per_token"}) {
    EXPECT_TRUE(json[field].is_null()) << field;
  }
  report.seconds_per_token.reset();
  EXPECT_TRUE(Json::parse(report_json(report))["seconds_per_token"].is_null());
}

TEST(ReportJson, SurvivesAPathThatIsNotUtf8) {  // C17
  RunReport report = sample();
  report.model = "/models/\xFF";
  EXPECT_NO_THROW(Json::parse(report_json(report)));
}

TEST(ReportSummary, SaysWhenItIsNotTheModel) {
  RunReport report = sample();
  EXPECT_THAT(report_summary(report), Not(HasSubstr("not the model")));
  report.layers = 2;
  EXPECT_THAT(report_summary(report), HasSubstr("2 of 93 layers"));
}

TEST(WriteReport, ReplacesAFile) {
  const test::TempDir dir;
  const auto path = dir.path() / "r.json";
  std::ofstream(path) << "old";
  ASSERT_TRUE(write_report(sample(), path));
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), report_json(sample()));
}

TEST(WriteReport, NamesAFileThatCannotBeWritten) {  // C18
  const test::TempDir dir;
  const Status status = write_report(sample(), dir.path() / "absent" / "r.json");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kOutput);
  EXPECT_THAT(status.error().message, HasSubstr("absent"));
}

TEST(WriteReport, ReplacesWhatALinkNamesAndKeepsTheLink) {
  const test::TempDir dir;
  std::filesystem::create_directory(dir.path() / "elsewhere");
  const auto target = dir.path() / "elsewhere" / "r.json";
  const auto link = dir.path() / "link";
  std::filesystem::create_symlink("elsewhere/r.json", link);
  for (const char* existing : {"", "old"}) {  // first the target is absent
    if (*existing) std::ofstream(target) << existing;
    ASSERT_TRUE(write_report(sample(), link));
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    std::stringstream text;
    text << std::ifstream(target).rdbuf();
    EXPECT_EQ(text.str(), report_json(sample()));
  }
}

TEST(WriteReport, WritesToADeviceWithoutReplacingIt) {
  const Status status = write_report(sample(), "/dev/full");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kOutput);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

}  // namespace
}  // namespace k3::cli
