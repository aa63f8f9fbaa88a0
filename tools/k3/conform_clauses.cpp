#include "tools/k3/conform_clauses.h"

#include "common/base/check.h"

namespace k3::cli {
namespace {

constexpr std::array<std::string_view, kClauses> kNames = {
    "files",        "connection id", "regions",       "welcome",          "fingerprint",
    "version",      "greeting",      "sequence",      "malformed frames", "unserved messages",
    "description",  "bytes",         "references",    "generation",       "complete",
    "once",         "batch",         "unknown layer", "unknown expert",   "too many experts",
    "open batches", "leases",        "waiting",       "release",          "two clients",
    "death",        "hints",         "urgency",       "endurance",        "statistics",
    "restart"};

}  // namespace

std::string id_of(Clause clause) { return fmt::format("E{}", static_cast<int>(clause)); }

std::string_view name_of(Clause clause) { return kNames[static_cast<std::size_t>(clause) - 1]; }

void Findings::skip(Clause clause, std::string why) { at(clause).skipped = std::move(why); }

void Findings::cut_short(const std::vector<Clause>& clauses, const std::string& why) {
  for (const Clause clause : clauses) {
    const Record& record = at(clause);
    if (record.checks == 0 && record.skipped.empty()) expect(clause, false, "not checked: {}", why);
  }
}

void Findings::breach(Clause clause, std::string what) {
  Record& record = at(clause);
  if (record.breaches++ == 0) record.first_breach = std::move(what);
}

std::vector<Verdict> Findings::verdicts() const {
  std::vector<Verdict> all;
  for (std::size_t i = 0; i < kClauses; ++i) {
    const Record& record = records_[i];
    const auto clause = static_cast<Clause>(i + 1);
    K3_CHECK(record.checks > 0 || !record.skipped.empty(), name_of(clause));
    if (record.breaches > 0) {
      std::string detail = record.first_breach;
      if (record.breaches > 1) detail += fmt::format(" (and {} more)", record.breaches - 1);
      all.push_back({clause, Outcome::kFailed, std::move(detail)});
    } else if (record.checks > 0) {
      all.push_back({clause, Outcome::kPassed, {}});
    } else {
      all.push_back({clause, Outcome::kSkipped, record.skipped});
    }
  }
  return all;
}

}  // namespace k3::cli
