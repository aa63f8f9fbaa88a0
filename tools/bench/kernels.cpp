// k3-bench kernels: every kernel at the released shapes, against the machine's read rate and its
// peak of multiply-adds, both measured in the same run with the same threads.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/kernels/select.h"
#include "tools/bench/commands.h"
#include "tools/bench/kernel_cases.h"
#include "tools/bench/kernel_report.h"

namespace k3::bench {
namespace {

struct KernelsOptions {
  int threads = 2;
  std::string isa;
  std::string filter = ".";
  int repetitions = 5;
  double seconds = 0.2;
  double memory_gb = 1;
  std::filesystem::path json;
};

Result<std::vector<const kernels::KernelTable*>> chosen_tables(const std::string& isa) {
  if (!isa.empty()) {
    K3_ASSIGN(const kernels::KernelTable* const table, kernels::select_table(isa));
    return std::vector{table};
  }
  std::vector<const kernels::KernelTable*> tables = kernels::supported_tables();
  if (tables.size() > 1) tables.pop_back();  // the reference defines bits, not speed
  return tables;
}

// The repetitions of all cases are mixed, so that a disturbance hits limits and kernels alike.
void start_google_benchmark(const std::string& filter) {
  std::vector<std::string> words = {"k3-bench", "--benchmark_enable_random_interleaving=true",
                                    "--benchmark_filter=" + filter};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
}

Status write_json(const std::filesystem::path& path, const std::vector<KernelResult>& results) {
  std::ofstream file(path);
  file << as_json(results).dump(2) << '\n';
  file.flush();
  if (file) return {};
  return fail(ErrorCode::kOutput, "{}: cannot be written", path.string());
}

Status measure(const KernelsOptions& options) {
  K3_ASSIGN(const auto tables, chosen_tables(options.isa));
  const auto pool_bytes = static_cast<std::size_t>(options.memory_gb * 1e9);
  const std::vector<KernelCase> cases = kernel_cases(tables, options.threads, pool_bytes);
  start_google_benchmark(options.filter);
  for (const KernelCase& kernel_case : cases) {
    const auto loop = [&kernel_case](benchmark::State& state) {
      for (auto _ : state) kernel_case.run();
    };
    benchmark::RegisterBenchmark(benchmark_name(kernel_case).c_str(), loop)
        ->UseRealTime()
        ->MinTime(options.seconds)
        ->Repetitions(options.repetitions);
  }
  KernelReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  const std::vector<KernelResult> results = reporter.results(cases);
  fmt::print(stderr, "\n");
  fmt::print("{}", as_table(results));
  return options.json.empty() ? Status{} : write_json(options.json, results);
}

}  // namespace

void add_kernels(CLI::App& root, Action& action) {
  CLI::App* command = root.add_subcommand(
      "kernels",
      "Products and recurrences at the released shapes: medians of the time of one run, of weights "
      "read a second, and how much that is of the memory's read rate and of the peak of "
      "multiply-adds, both measured in the same run.");
  auto options = std::make_shared<KernelsOptions>();
  command->add_option("--threads", options->threads, "Threads of the team")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--isa", options->isa,
                      "One instruction set instead of all but the reference");
  command->add_option(
      "--filter", options->filter,
      "Regular expression of cases to run, over TABLE:CASE; the limits are ':memory "
      "read' and ':multiply-add in registers'");
  command->add_option("--repetitions", options->repetitions, "Repetitions, mixed over all cases")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "Least seconds of one repetition")
      ->check(CLI::Range(0.001, 60.0))
      ->capture_default_str();
  command
      ->add_option("--memory-gb", options->memory_gb,
                   "10^9 bytes of weights for each shape and format; more than the caches hold")
      ->check(CLI::Range(0.001, 1000.0))
      ->capture_default_str();
  command->add_option("--json", options->json, "Also write the figures to this file");
  command->callback([options, &action] { action = [options] { return measure(*options); }; });
}

}  // namespace k3::bench
