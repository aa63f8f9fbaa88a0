#include "tools/bench/kernel_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace k3::bench {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double rate(const std::vector<KernelResult>& results, const char* name,
            double KernelResult::*field) {
  for (const KernelResult& result : results) {
    if (result.name == name) return result.*field;
  }
  return 0;
}

std::string percent(double fraction) {
  return fraction > 0 ? fmt::format("{:.0f} %", 100 * fraction) : "-";
}

std::string figure(double value) { return value > 0 ? fmt::format("{:.1f}", value) : "-"; }

}  // namespace

std::string benchmark_name(const KernelCase& kernel_case) {
  return kernel_case.table + ":" + kernel_case.name;
}

bool KernelReporter::ReportContext(const Context&) { return true; }

void KernelReporter::ReportRuns(const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    if (run.run_type != Run::RT_Iteration || run.iterations == 0) continue;
    seconds_[run.run_name.function_name].push_back(run.real_accumulated_time /
                                                   double(run.iterations));
    std::fputc('.', stderr);
  }
}

std::vector<KernelResult> KernelReporter::results(const std::vector<KernelCase>& cases) const {
  std::vector<KernelResult> results;
  for (const KernelCase& kernel_case : cases) {
    const auto found = seconds_.find(benchmark_name(kernel_case));
    if (found == seconds_.end()) continue;
    const double seconds = median(found->second);
    results.push_back({.table = kernel_case.table,
                       .name = kernel_case.name,
                       .seconds = seconds,
                       .gb_per_s = kernel_case.bytes / seconds / 1e9,
                       .gflop_per_s = 2 * kernel_case.multiply_adds / seconds / 1e9});
  }
  const double read = rate(results, kReadCase, &KernelResult::gb_per_s);
  const double peak = rate(results, kPeakCase, &KernelResult::gflop_per_s);
  for (KernelResult& result : results) {
    if (read > 0) result.of_read_rate = result.gb_per_s / read;
    if (peak > 0) result.of_peak = result.gflop_per_s / peak;
  }
  return results;
}

std::string as_table(const std::vector<KernelResult>& results) {
  std::string table = fmt::format("{:<10} {:<28} {:>10} {:>8} {:>8} {:>9} {:>8}\n", "table", "case",
                                  "ms", "GB/s", "of read", "GFLOP/s", "of peak");
  for (const KernelResult& r : results) {
    table += fmt::format("{:<10} {:<28} {:>10.3f} {:>8} {:>8} {:>9} {:>8}\n",
                         r.table.empty() ? "limit" : r.table, r.name, 1e3 * r.seconds,
                         figure(r.gb_per_s), percent(r.of_read_rate), figure(r.gflop_per_s),
                         percent(r.of_peak));
  }
  return table;
}

nlohmann::json as_json(const std::vector<KernelResult>& results) {
  nlohmann::json list = nlohmann::json::array();
  for (const KernelResult& r : results) {
    list.push_back({{"table", r.table},
                    {"case", r.name},
                    {"seconds", r.seconds},
                    {"gb_per_s", r.gb_per_s},
                    {"of_read_rate", r.of_read_rate},
                    {"gflop_per_s", r.gflop_per_s},
                    {"of_peak", r.of_peak}});
  }
  return list;
}

}  // namespace k3::bench
