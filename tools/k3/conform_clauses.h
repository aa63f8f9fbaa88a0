// The clauses of docs/expert-service.md that can be checked from outside, and what was found of
// each.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace k3::cli {

// The numbers are those of docs/expert-service.md.
enum class Clause : int {
  kFiles = 1,
  kConnectionId,
  kRegions,
  kWelcome,
  kFingerprint,
  kVersion,
  kGreeting,
  kSequence,
  kMalformed,
  kUnserved,
  kDescription,
  kBytes,
  kReferences,
  kGeneration,
  kComplete,
  kOnce,
  kBatch,
  kUnknownLayer,
  kUnknownExpert,
  kTooMany,
  kOpenBatches,
  kLeases,
  kWaiting,
  kRelease,
  kClients,
  kDeath,
  kHints,
  kUrgency,
  kEndurance,
  kStatistics,
  kRestart,
};
inline constexpr std::size_t kClauses = static_cast<std::size_t>(Clause::kRestart);

// "E12"
std::string id_of(Clause clause);
// "bytes"
std::string_view name_of(Clause clause);

enum class Outcome { kPassed, kFailed, kSkipped };

struct Verdict {
  Clause clause = Clause::kFiles;
  Outcome outcome = Outcome::kPassed;
  std::string detail;  // what was seen and expected, or why it was skipped; empty when it passed
};

// Collects what the scenarios see. A breach counts for the clause it breaks, whichever scenario
// sees it. One thread.
class Findings {
 public:
  // Records whether `clause` held this once; returns `held`. The text is made only when it did not.
  template <class... Args>
  bool expect(Clause clause, bool held, fmt::format_string<Args...> format, Args&&... args) {
    ++at(clause).checks;
    if (!held) breach(clause, fmt::format(format, std::forward<Args>(args)...));
    return held;
  }

  // `clause` cannot be checked here. Ignored when it was checked all the same.
  void skip(Clause clause, std::string why);

  // The scenario in charge of `clauses` could not go on: those it had not checked are broken.
  void cut_short(const std::vector<Clause>& clauses, const std::string& why);

  // Every clause in order; each must have been checked, skipped or cut short (K3_CHECK).
  std::vector<Verdict> verdicts() const;

 private:
  struct Record {
    std::size_t checks = 0;
    std::size_t breaches = 0;
    std::string first_breach;
    std::string skipped;
  };
  Record& at(Clause clause) { return records_[static_cast<std::size_t>(clause) - 1]; }
  void breach(Clause clause, std::string what);

  std::array<Record, kClauses> records_;
};

}  // namespace k3::cli
