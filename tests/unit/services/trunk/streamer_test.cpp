// The streamer against a disk and subscribers played by the test.
#include "services/trunk/streamer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <set>

namespace k3::trunk {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t kSlotBytes = 8;

struct Delivery {
  std::uint64_t pass;
  std::uint32_t unit;
  std::size_t slot;
};

struct Failure {
  std::uint64_t subscriber;
  std::uint64_t pass;
  std::uint32_t unit;
  std::string message;
  bool operator==(const Failure&) const = default;
};

// A streamer over `units` units of one number each. Reads end when the test says so.
class Trunk {
 public:
  Trunk(std::uint32_t units, std::size_t slots, const std::set<std::uint32_t>& pinned = {})
      : memory_(slots * kSlotBytes, std::byte{0xff}), pool_(memory_, slots, kSlotBytes) {
    std::vector<bool> pins(units);
    for (const std::uint32_t unit : pinned) pins[unit] = true;
    streamer_ = std::make_unique<Streamer>(
        pool_, pins,
        Streamer::Callbacks{
            [this](const Streamer::Read& read) {
              reading.push_back(read);
              read_log.push_back(read.unit);
            },
            [this](std::uint64_t who, std::uint64_t pass, std::uint32_t unit, std::size_t slot) {
              EXPECT_TRUE(pool_.leased(slot));
              EXPECT_EQ(content(slot), unit);
              held[who].push_back({pass, unit, slot});
              received[who].push_back(unit);
            },
            [this](std::uint64_t who, std::uint64_t pass, std::uint32_t unit, const Error& error) {
              failures.push_back({who, pass, unit, error.message});
            }});
  }

  Streamer& operator*() { return *streamer_; }
  Streamer* operator->() { return streamer_.get(); }

  std::uint64_t content(std::size_t slot) const {
    std::uint64_t unit = 0;
    std::memcpy(&unit, memory_.data() + slot * kSlotBytes, sizeof unit);
    return unit;
  }

  // Ends the i-th read in flight.
  void finish(std::size_t i = 0, const Status& status = {}) {
    const Streamer::Read read = reading.at(i);
    reading.erase(reading.begin() + static_cast<std::ptrdiff_t>(i));
    const std::uint64_t content = status ? read.unit : ~std::uint64_t{0};
    ASSERT_FALSE(pool_.leased(read.slot));
    std::memcpy(pool_.bytes(read.slot).data(), &content, sizeof content);
    streamer_->read_done(read.unit, status);
  }

  void finish_all() {
    while (!reading.empty()) finish();
  }

  // Releases the i-th unit `who` holds, whose bytes must still be there.
  void release(std::uint64_t who, std::size_t i = 0) {
    const Delivery delivery = held[who].at(i);
    EXPECT_EQ(content(delivery.slot), delivery.unit);
    held[who].erase(held[who].begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_TRUE(streamer_->release(who, delivery.pass, delivery.unit));
  }

  // Plays disk and subscriber until nothing moves.
  void settle(std::uint64_t who) {
    while (!reading.empty() || !held[who].empty()) {
      finish_all();
      if (!held[who].empty()) release(who);
    }
  }

  std::vector<Streamer::Read> reading;
  std::vector<std::uint32_t> read_log;
  std::map<std::uint64_t, std::deque<Delivery>> held;
  std::map<std::uint64_t, std::vector<std::uint32_t>> received;
  std::vector<Failure> failures;

 private:
  std::vector<std::byte> memory_;
  SlotPool pool_;
  std::unique_ptr<Streamer> streamer_;
};

std::vector<std::uint32_t> range(std::uint32_t first, std::uint32_t last) {
  std::vector<std::uint32_t> units;
  for (std::uint32_t unit = first; unit <= last; ++unit) units.push_back(unit);
  return units;
}

// C27: a pass reads each unit that is not pinned exactly once, whatever the number of slots.
TEST(Streamer, ReadsEachUnpinnedUnitOncePerPass) {
  constexpr std::uint32_t kUnits = 12;
  const std::vector<std::pair<std::size_t, std::set<std::uint32_t>>> shapes = {
      {1, {}}, {2, {}}, {3, {}}, {4, {}}, {6, {0, 6}}, {7, {0, 4, 8}}, {11, {0, 2, 3, 5, 6, 8, 9}}};
  for (const auto& [slots, pinned] : shapes) {
    Trunk trunk(kUnits, slots, pinned);
    trunk->start();
    std::uint64_t reads_before = 0;
    for (std::uint64_t pass = 1; pass <= 4; ++pass) {
      ASSERT_TRUE(trunk->subscribe(1, {pass, 0, kUnits - 1}));
      trunk.settle(1);
      const std::uint64_t reads = trunk->counters().reads;
      if (pass > 1) {
        EXPECT_EQ(reads - reads_before, kUnits - pinned.size()) << slots << " slots, pass " << pass;
      }
      reads_before = reads;
      EXPECT_EQ(trunk.received[1], range(0, kUnits - 1));
      trunk.received[1].clear();
    }
    for (const std::uint32_t unit : pinned) {
      EXPECT_EQ(std::count(trunk.read_log.begin(), trunk.read_log.end(), unit), 1);
    }
  }
}

TEST(Streamer, NeverReadsAgainWhatFitsAltogether) {
  Trunk trunk(5, 5, {0, 1, 2, 3, 4});
  for (std::uint64_t pass = 1; pass <= 3; ++pass) {
    ASSERT_TRUE(trunk->subscribe(1, {pass, 0, 4}));
    trunk.settle(1);
  }
  EXPECT_EQ(trunk->counters().reads, 5u);
  EXPECT_EQ(trunk->counters().units_delivered, 15u);
  EXPECT_EQ(trunk->counters().units_reused, 10u);
}

TEST(Streamer, DeliversInOrderWhenReadsEndOutOfOrder) {
  Trunk trunk(4, 4);
  ASSERT_TRUE(trunk->subscribe(1, {1, 0, 3}));
  ASSERT_EQ(trunk.reading.size(), 2u);
  trunk.finish(1);
  EXPECT_THAT(trunk.received[1], IsEmpty());
  trunk.finish(0);
  EXPECT_THAT(trunk.received[1], ElementsAre(0, 1));
}

TEST(Streamer, ReadsAheadBeforeAnybodySubscribes) {
  Trunk trunk(5, 3);
  trunk->start();
  trunk.finish_all();
  EXPECT_THAT(trunk.read_log, ElementsAre(0, 1, 2));
  ASSERT_TRUE(trunk->subscribe(1, {1, 0, 4}));
  EXPECT_THAT(trunk.received[1], ElementsAre(0, 1, 2));
  EXPECT_EQ(trunk->counters().units_reused, 0u);
}

TEST(Streamer, ReadsAheadAcrossTheBoundaryOfPasses) {
  Trunk trunk(4, 2);
  ASSERT_TRUE(trunk->subscribe(1, {1, 0, 3}));
  trunk.settle(1);
  EXPECT_THAT(trunk.read_log, ElementsAre(0, 1, 2, 3, 0, 1));
  ASSERT_TRUE(trunk->subscribe(1, {2, 0, 3}));
  EXPECT_THAT(trunk.received[1], ElementsAre(0, 1, 2, 3, 0, 1));
}

TEST(Streamer, ExpectsTheSameRangeAgain) {
  Trunk trunk(6, 2);
  ASSERT_TRUE(trunk->subscribe(1, {1, 2, 4}));
  trunk.settle(1);
  EXPECT_THAT(trunk.read_log, ElementsAre(2, 3, 4, 2, 3));
}

TEST(Streamer, MarksReadsSomebodyWaitsForAsUrgent) {
  Trunk trunk(4, 4);
  ASSERT_TRUE(trunk->subscribe(1, {1, 1, 3}));
  ASSERT_EQ(trunk.reading.size(), 2u);
  EXPECT_TRUE(trunk.reading[0].urgent);
  EXPECT_FALSE(trunk.reading[1].urgent);
}

// C21: one slot is never read into while its unit is in use.
TEST(Streamer, OneSlotIsSerialised) {
  Trunk trunk(3, 1);
  ASSERT_TRUE(trunk->subscribe(1, {1, 0, 2}));
  for (std::uint32_t unit = 0; unit < 3; ++unit) {
    ASSERT_EQ(trunk.reading.size(), 1u);
    trunk.finish();
    ASSERT_EQ(trunk.held[1].size(), 1u);
    EXPECT_EQ(trunk.held[1][0].unit, unit);
    EXPECT_THAT(trunk.reading, IsEmpty());
    trunk.release(1);
  }
}

TEST(Streamer, TwoSubscribersTakeTurnsInOneSlot) {
  Trunk trunk(10, 1);
  ASSERT_TRUE(trunk->subscribe(1, {1, 0, 4}));
  ASSERT_TRUE(trunk->subscribe(2, {1, 5, 9}));
  while (!trunk.reading.empty()) {
    trunk.finish();
    for (const std::uint64_t who : {1, 2}) {
      if (!trunk.held[who].empty()) trunk.release(who);
    }
    const auto ahead = static_cast<std::int64_t>(trunk.received[1].size()) -
                       static_cast<std::int64_t>(trunk.received[2].size());
    ASSERT_LE(std::abs(ahead), 1);
    if (trunk.received[1].size() == 5 && trunk.received[2].size() == 5) break;
  }
  EXPECT_EQ(trunk.received[1], range(0, 4));
  EXPECT_EQ(trunk.received[2], range(5, 9));
}

TEST(Streamer, DropsReadAheadForADemand) {
  Trunk trunk(8, 2);
  trunk->start();
  trunk.finish_all();  // units 0 and 1, wanted by nobody yet
  ASSERT_TRUE(trunk->subscribe(1, {1, 6, 7}));
  trunk.finish_all();
  EXPECT_THAT(trunk.received[1], ElementsAre(6, 7));
}

TEST(Streamer, SharesOneReadBetweenSubscribers) {
  Trunk trunk(3, 3);
  ASSERT_TRUE(trunk->subscribe(1, {1, 0, 2}));
  ASSERT_TRUE(trunk->subscribe(2, {1, 0, 2}));
  trunk.finish_all();
  EXPECT_EQ(trunk.received[1], range(0, 2));
  EXPECT_EQ(trunk.received[2], range(0, 2));
  EXPECT_EQ(trunk->counters().reads, 3u);
  EXPECT_EQ(trunk->counters().units_reused, 3u);
}

TEST(Streamer, AFailedUnitEndsThePassesThatWaitForItAndIsReadAgain) {
  Trunk trunk(3, 1);
  ASSERT_TRUE(trunk->subscribe(1, {1, 0, 2}));
  ASSERT_TRUE(trunk->subscribe(2, {5, 0, 2}));
  trunk.finish(0, fail(ErrorCode::kWeights, "unit 0: no medium"));
  EXPECT_THAT(trunk.failures, ElementsAre(Failure{1, 1, 0, "unit 0: no medium"},
                                          Failure{2, 5, 0, "unit 0: no medium"}));
  EXPECT_EQ(trunk->counters().read_errors, 1u);
  ASSERT_TRUE(trunk->subscribe(1, {2, 0, 2}));
  trunk.settle(1);
  EXPECT_EQ(trunk.received[1], range(0, 2));
  EXPECT_EQ(trunk.failures.size(), 2u);
}

TEST(Streamer, AFailedReadAheadIsTriedAgainWhenNeeded) {
  Trunk trunk(3, 2);
  ASSERT_TRUE(trunk->subscribe(1, {1, 0, 2}));
  ASSERT_EQ(trunk.reading[1].unit, 1u);
  trunk.finish(1, fail(ErrorCode::kWeights, "unit 1: no medium"));
  EXPECT_THAT(trunk.failures, IsEmpty());
  trunk.settle(1);
  EXPECT_EQ(trunk.received[1], range(0, 2));
  EXPECT_THAT(trunk.failures, IsEmpty());
}

TEST(Streamer, AUnitThatKeepsFailingEndsEachPassOnce) {
  Trunk trunk(3, 2);
  const Status broken = fail(ErrorCode::kWeights, "unit 1: no medium");
  for (std::uint64_t pass = 1; pass <= 3; ++pass) {
    ASSERT_TRUE(trunk->subscribe(1, {pass, 0, 2}));
    for (int step = 0; step < 100 && (!trunk.reading.empty() || !trunk.held[1].empty()); ++step) {
      if (!trunk.reading.empty()) trunk.finish(0, trunk.reading[0].unit == 1 ? broken : Status{});
      if (!trunk.held[1].empty()) trunk.release(1);
    }
    EXPECT_THAT(trunk.reading, IsEmpty());  // nobody retries for nobody
    ASSERT_EQ(trunk.failures.size(), pass);
    EXPECT_EQ(trunk.failures.back(), (Failure{1, pass, 1, "unit 1: no medium"}));
  }
}

TEST(Streamer, AReleaseIsIdempotentAndAnUnknownOneIgnored) {
  Trunk trunk(3, 2);
  EXPECT_FALSE(trunk->release(1, 1, 0));
  ASSERT_TRUE(trunk->subscribe(1, {1, 0, 2}));
  EXPECT_FALSE(trunk->release(1, 1, 0));  // not delivered yet
  trunk.finish();
  trunk.release(1);
  EXPECT_FALSE(trunk->release(1, 1, 0));
  EXPECT_FALSE(trunk->release(1, 2, 0));
  EXPECT_FALSE(trunk->release(1, 1, 77));
  trunk.settle(1);
  EXPECT_EQ(trunk.received[1], range(0, 2));
}

TEST(Streamer, ADeadSubscriberLosesItsLeases) {
  Trunk trunk(4, 1);
  ASSERT_TRUE(trunk->subscribe(1, {1, 0, 3}));
  trunk.finish();
  ASSERT_EQ(trunk.held[1].size(), 1u);
  ASSERT_TRUE(trunk->subscribe(2, {1, 3, 3}));
  EXPECT_THAT(trunk.reading, IsEmpty());
  trunk->drop(1);
  trunk.held[1].clear();
  ASSERT_EQ(trunk.reading.size(), 1u);
  trunk.finish();
  EXPECT_THAT(trunk.received[2], ElementsAre(3));
}

TEST(Streamer, RefusesRangesOutsideTheTrunk) {
  Trunk trunk(4, 2);
  const Status outside = trunk->subscribe(1, {1, 0, 4});
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().code, ErrorCode::kUsage);
  EXPECT_THAT(outside.error().message, HasSubstr("0..4"));
  EXPECT_THAT(outside.error().message, HasSubstr("0..3"));
  EXPECT_FALSE(trunk->subscribe(1, {1, 3, 2}));
  EXPECT_THAT(trunk.reading, IsEmpty());
}

TEST(Streamer, RefusesPassNumbersThatDoNotCountUp) {
  Trunk trunk(4, 2);
  ASSERT_TRUE(trunk->subscribe(1, {5, 0, 3}));
  EXPECT_FALSE(trunk->subscribe(1, {5, 0, 3}));
  EXPECT_FALSE(trunk->subscribe(1, {4, 0, 3}));
  EXPECT_TRUE(trunk->subscribe(1, {6, 0, 3}));
  EXPECT_TRUE(trunk->subscribe(2, {5, 0, 3}));
}

TEST(Streamer, LimitsOpenPasses) {
  Trunk trunk(4, 2);
  for (std::uint64_t pass = 1; pass <= Streamer::kMaxOpenPasses; ++pass) {
    ASSERT_TRUE(trunk->subscribe(1, {pass, 0, 3}));
  }
  EXPECT_FALSE(trunk->subscribe(1, {1000, 0, 3}));
}

// Any interleaving of reads, failures, releases and deaths: everybody gets its units in order, the
// bytes under a lease never change (checked at each release), and everything ends.
TEST(Streamer, RandomHistories) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    const std::uint32_t units = 1 + static_cast<std::uint32_t>(below(9));
    const std::size_t slots = 1 + below(units);
    std::set<std::uint32_t> pinned;
    for (std::uint32_t unit = 0; unit < units; ++unit) {
      if (slots == units || (pinned.size() + 1 < slots && below(3) == 0)) pinned.insert(unit);
    }
    Trunk trunk(units, slots, pinned);
    const std::size_t subscribers = 1 + below(3);
    std::map<std::uint64_t, std::vector<std::uint32_t>> asked;
    const bool with_failures = below(4) == 0;
    std::uint64_t pass = 0;
    for (int step = 0; step < 400; ++step) {
      const std::uint64_t who = 1 + below(subscribers);
      switch (below(8)) {
        case 0: {
          const auto first = static_cast<std::uint32_t>(below(units));
          const auto last = first + static_cast<std::uint32_t>(below(units - first));
          if (trunk->subscribe(who, {++pass, first, last})) {
            for (const std::uint32_t unit : range(first, last)) asked[who].push_back(unit);
          }
          break;
        }
        case 1:
          if (below(20) == 0) {
            trunk->drop(who);
            trunk.held.erase(who);
            trunk.received.erase(who);
            asked.erase(who);
          }
          break;
        case 2:
        case 3:
        case 4:
          if (!trunk.reading.empty()) {
            const bool broken = with_failures && below(10) == 0;
            trunk.finish(below(trunk.reading.size()),
                         broken ? Status(fail(ErrorCode::kWeights, "broken")) : Status{});
          }
          break;
        default:
          if (!trunk.held[who].empty()) trunk.release(who, below(trunk.held[who].size()));
      }
    }
    for (bool moved = true; moved;) {
      moved = !trunk.reading.empty();
      if (moved) trunk.finish(below(trunk.reading.size()));
      for (std::uint64_t who = 1; who <= subscribers; ++who) {
        if (!trunk.held[who].empty()) {
          moved = true;
          trunk.release(who);
        }
      }
    }
    for (const auto& [who, expected] : asked) {
      if (trunk.failures.empty()) {
        ASSERT_EQ(trunk.received[who], expected) << "seed " << seed;
      }
    }
    const std::uint64_t reused = trunk->counters().units_reused;
    EXPECT_LE(trunk->counters().units_delivered - reused, trunk->counters().reads);
  }
}

}  // namespace
}  // namespace k3::trunk
