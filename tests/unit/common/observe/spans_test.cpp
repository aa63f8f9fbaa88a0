// Spans: what is recorded while they are on, what is not, and what a full ring drops.
#include "common/observe/spans.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace k3::spans {
namespace {

class Spans : public testing::Test {
 protected:
  void SetUp() override { set_on(true); }
  void TearDown() override {
    set_on(false);
    set_trace_id(0);
    (void)take();
  }
};

TEST(SpanRing, DropsTheOldestAndCountsThem) {
  SpanRing ring(3);
  for (std::uint32_t i = 0; i < 5; ++i) ring.add({.name = "x", .argument = i});
  const Recorded recorded = ring.take();
  ASSERT_EQ(recorded.spans.size(), 3u);
  EXPECT_EQ(recorded.dropped, 2u);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(recorded.spans[i].argument, i + 2);
}

TEST(SpanRing, IsEmptyOnceTakenAndTakesAgain) {
  SpanRing ring(2);
  for (std::uint32_t i = 0; i < 3; ++i) ring.add({.name = "x", .argument = i});
  (void)ring.take();
  ring.add({.name = "x", .argument = 7});
  const Recorded recorded = ring.take();
  ASSERT_EQ(recorded.spans.size(), 1u);
  EXPECT_EQ(recorded.spans[0].argument, 7u);
  EXPECT_EQ(recorded.dropped, 0u);
}

TEST_F(Spans, AScopeLastsAsLongAsItself) {
  set_trace_id(42);
  const std::uint64_t before = now_ns();
  {
    const Scope outer("outer", 7);
    const Scope inner("inner");
  }
  const std::uint64_t after = now_ns();
  const Recorded recorded = take();
  ASSERT_EQ(recorded.spans.size(), 2u);
  const Span& inner = recorded.spans[0];
  const Span& outer = recorded.spans[1];
  EXPECT_EQ(std::string(inner.name), "inner");
  EXPECT_EQ(std::string(outer.name), "outer");
  EXPECT_EQ(outer.argument, 7u);
  EXPECT_EQ(outer.trace_id, 42u);
  EXPECT_EQ(outer.thread, static_cast<std::uint32_t>(::gettid()));
  EXPECT_LE(before, outer.begin_ns);
  EXPECT_LE(outer.begin_ns, inner.begin_ns);
  EXPECT_LE(inner.begin_ns, inner.end_ns);
  EXPECT_LE(inner.end_ns, outer.end_ns);
  EXPECT_LE(outer.end_ns, after);
}

TEST_F(Spans, NothingIsRecordedWhileOff) {
  set_on(false);
  { const Scope scope("off"); }
  record_since(now_ns(), "off", 0);
  EXPECT_TRUE(take().spans.empty());
}

TEST_F(Spans, AScopeThatSawTheSwitchIsNotRecorded) {
  {
    const Scope scope("cut at its end");
    set_on(false);
  }
  {
    const Scope scope("cut at its beginning");
    set_on(true);
  }
  EXPECT_TRUE(take().spans.empty());
}

TEST_F(Spans, SwitchingOnDropsWhatNobodyTook) {
  { const Scope scope("old"); }
  set_on(false);
  set_on(true);
  EXPECT_TRUE(take().spans.empty());
}

TEST_F(Spans, SwitchingOnAgainKeepsWhatIsHeld) {
  { const Scope scope("kept"); }
  set_on(true);
  EXPECT_EQ(take().spans.size(), 1u);
}

TEST_F(Spans, ASpanSinceBelongsToNoThread) {
  const std::uint64_t begin = now_ns();
  record_since(begin, "wait", 3);
  const Recorded recorded = take();
  ASSERT_EQ(recorded.spans.size(), 1u);
  EXPECT_EQ(recorded.spans[0].thread, 0u);
  EXPECT_EQ(recorded.spans[0].begin_ns, begin);
  EXPECT_EQ(recorded.spans[0].argument, 3u);
}

TEST_F(Spans, ThreadsRecordTogetherAndNoneIsLost) {
  constexpr std::size_t kEach = kCapacity;
  const auto work = [] {
    for (std::size_t i = 0; i < kEach; ++i) const Scope scope("work");
  };
  std::thread first(work);
  std::thread second(work);
  first.join();
  second.join();
  const Recorded recorded = take();
  EXPECT_EQ(recorded.spans.size(), kCapacity);
  EXPECT_EQ(recorded.spans.size() + recorded.dropped, 2 * kEach);
}

}  // namespace
}  // namespace k3::spans
