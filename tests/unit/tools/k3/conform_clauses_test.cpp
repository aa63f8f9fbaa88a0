// How what the scenarios of `k3 conform` see becomes one verdict a clause.
#include "tools/k3/conform_clauses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace k3::cli {
namespace {

constexpr Clause kFirst = Clause::kFiles;

// Skips every clause but those of the test, which must not be forgotten.
Findings all_skipped() {
  Findings findings;
  for (std::size_t i = 1; i <= kClauses; ++i) findings.skip(static_cast<Clause>(i), "no time");
  return findings;
}

Verdict verdict(const Findings& findings, Clause clause) {
  return findings.verdicts()[static_cast<std::size_t>(clause) - 1];
}

TEST(Findings, NumbersAndNamesAreThoseOfTheContract) {
  EXPECT_EQ(id_of(Clause::kFiles), "E1");
  EXPECT_EQ(name_of(Clause::kFiles), "files");
  EXPECT_EQ(id_of(Clause::kBytes), "E12");
  EXPECT_EQ(name_of(Clause::kBytes), "bytes");
  EXPECT_EQ(id_of(Clause::kRestart), "E31");
  EXPECT_EQ(name_of(Clause::kRestart), "restart");
}

TEST(Findings, AClauseThatHeldPassesAlthoughSomeScenarioSkipsIt) {
  Findings findings = all_skipped();
  EXPECT_TRUE(findings.expect(kFirst, true, "never made"));
  EXPECT_EQ(verdict(findings, kFirst).outcome, Outcome::kPassed);
  EXPECT_EQ(verdict(findings, Clause::kBytes).outcome, Outcome::kSkipped);
  EXPECT_EQ(verdict(findings, Clause::kBytes).detail, "no time");
}

TEST(Findings, OneBreachFailsWhateverElseHeld) {
  Findings findings = all_skipped();
  findings.expect(kFirst, true, "never made");
  EXPECT_FALSE(findings.expect(kFirst, false, "saw {}, expected {}", 1, 2));
  findings.expect(kFirst, true, "never made");
  EXPECT_EQ(verdict(findings, kFirst).outcome, Outcome::kFailed);
  EXPECT_EQ(verdict(findings, kFirst).detail, "saw 1, expected 2");
  findings.expect(kFirst, false, "again");
  EXPECT_EQ(verdict(findings, kFirst).detail, "saw 1, expected 2 (and 1 more)");
}

TEST(Findings, AScenarioCutShortFailsWhatItHadNotChecked) {
  Findings findings;
  for (std::size_t i = 3; i <= kClauses; ++i) findings.expect(static_cast<Clause>(i), true, "-");
  findings.expect(kFirst, true, "never made");
  findings.cut_short({kFirst, Clause::kConnectionId}, "it hung up");
  EXPECT_EQ(verdict(findings, kFirst).outcome, Outcome::kPassed);
  EXPECT_EQ(verdict(findings, Clause::kConnectionId).outcome, Outcome::kFailed);
  EXPECT_THAT(verdict(findings, Clause::kConnectionId).detail, testing::HasSubstr("it hung up"));
}

TEST(FindingsDeathTest, AForgottenClauseIsABug) {
  EXPECT_DEATH((void)Findings().verdicts(), "files");
}

}  // namespace
}  // namespace k3::cli
