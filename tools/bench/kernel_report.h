// Collects what Google Benchmark measured of the kernel cases and prints it against the limits.
#pragma once

#include <benchmark/benchmark.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/bench/kernel_cases.h"

namespace k3::bench {

// Medians over repetitions of one case.
struct KernelResult {
  std::string table, name;
  double seconds = 0;       // of one run
  double gb_per_s = 0;      // of weights and state, 10^9 bytes
  double gflop_per_s = 0;   // two operations a multiply-add
  double of_read_rate = 0;  // gb_per_s over that of kReadCase
  double of_peak = 0;       // gflop_per_s over that of kPeakCase
};

// Keeps every repetition; prints nothing while they run but a mark on stderr.
class KernelReporter final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;

  // Of `cases`, registered in this order; those that a filter left out are missing.
  std::vector<KernelResult> results(const std::vector<KernelCase>& cases) const;

 private:
  std::map<std::string, std::vector<double>> seconds_;  // of each repetition, by benchmark name
};

// Under this name a case is registered.
std::string benchmark_name(const KernelCase& kernel_case);

std::string as_table(const std::vector<KernelResult>& results);
nlohmann::json as_json(const std::vector<KernelResult>& results);

}  // namespace k3::bench
