// The timeline file: units, names, and spans that overlap.
#include "tools/k3/chrome_trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace k3::cli {
namespace {

using Json = nlohmann::json;

std::vector<Json> events(const std::vector<ProcessSpans>& processes, const std::string& kind) {
  std::vector<Json> found;
  const Json timeline = Json::parse(chrome_trace(processes));
  for (const Json& event : timeline.at("traceEvents")) {
    if (event.at("ph") == kind) found.push_back(event);
  }
  return found;
}

ipc::RecordedSpan span(std::uint32_t thread, std::uint64_t begin_ns, std::uint64_t end_ns) {
  return {.name = 0,
          .thread = thread,
          .argument = 9,
          .begin_ns = begin_ns,
          .end_ns = end_ns,
          .trace_id = 3};
}

ProcessSpans process(std::uint32_t pid, std::vector<ipc::RecordedSpan> spans) {
  return {.process = "k3-trunk", .pid = pid, .names = {"read \"x\""}, .spans = std::move(spans)};
}

TEST(ChromeTrace, TimesAreMicrosecondsFromTheFirstSpanOn) {
  const auto found = events(
      {process(7, {span(7, 5'002'500, 5'004'001)}), process(8, {span(8, 5'000'000, 5'000'001)})},
      "X");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_DOUBLE_EQ(found[0].at("ts").get<double>(), 2.5);
  EXPECT_DOUBLE_EQ(found[0].at("dur").get<double>(), 1.501);
  EXPECT_DOUBLE_EQ(found[1].at("ts").get<double>(), 0.0);
  EXPECT_EQ(found[0].at("name"), "read \"x\"");
  EXPECT_EQ(found[0].at("args"), Json({{"token", 3}, {"n", 9}}));
}

TEST(ChromeTrace, NamesEachProcessAndThread) {
  std::map<std::string, std::string> names;
  for (const Json& event : events({process(7, {span(7, 1, 2), span(12, 1, 2)})}, "M")) {
    names[event.at("name").get<std::string>() + event.at("tid").dump()] =
        event.at("args").at("name");
  }
  const std::map<std::string, std::string> expected = {
      {"process_name7", "k3-trunk"}, {"thread_name7", "event loop"}, {"thread_name12", "reader"}};
  EXPECT_EQ(names, expected);
}

TEST(ChromeTrace, SpansOfNoThreadShareALaneOnlyWhenTheyLieApart) {
  const auto found = events({process(7, {span(0, 10, 30), span(0, 20, 40), span(0, 30, 50)})}, "X");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_NE(found[0].at("tid"), found[1].at("tid"));
  EXPECT_EQ(found[0].at("tid"), found[2].at("tid"));
}

TEST(ChromeTrace, CountsWhatWasDropped) {
  ProcessSpans first = process(7, {});
  first.dropped = 2;
  ProcessSpans second = process(8, {});
  second.dropped = 3;
  EXPECT_EQ(Json::parse(chrome_trace({first, second})).at("otherData").at("dropped"), 5);
}

}  // namespace
}  // namespace k3::cli
