// What a run did: the JSON of `k3 run --json` and the summary on the terminal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace k3::cli {

struct RunReport {
  std::optional<std::string> model;  // checkpoint directory, when it was named
  std::string fingerprint;
  std::uint32_t layers = 0;        // layers run
  std::uint32_t model_layers = 0;  // layers of the whole model
  std::string isa;
  std::uint32_t threads = 0;
  std::uint64_t trunk_bytes = 0;  // arena of the trunk service
  std::uint64_t cache_bytes = 0;  // arena of the experts service

  std::vector<std::int32_t> prompt_ids;
  std::vector<std::int32_t> generated_ids;
  std::optional<std::string> text;  // empty without a vocabulary
  std::string finish_reason;        // "length", "stop", "cancelled" or "error"

  std::optional<double> prefill_seconds;    // until the first token; empty when there is none
  std::optional<double> seconds_per_token;  // mean over decode steps; empty when there is none
  std::optional<double> median_seconds;     // median over decode steps
  double total_seconds = 0;
  double wait_trunk_seconds = 0;
  double wait_experts_seconds = 0;
  double messaging_seconds = 0;
  double compute_seconds = 0;

  std::uint64_t trunk_bytes_read = 0;
  std::uint64_t experts_bytes_read = 0;
  std::uint64_t hits = 0;
  std::uint64_t prefetched = 0;
  std::uint64_t misses = 0;
  std::uint32_t restarts = 0;
  std::uint64_t peak_memory_bytes = 0;  // largest sum of PSS over all processes
};

// "1.234 GB", "56.789 MB", "12.345 kB", decimal.
std::string human_bytes(std::uint64_t bytes);

// One JSON object; a number that is not finite becomes null.
std::string report_json(const RunReport& report);

// A few lines for the terminal, the last one ended.
std::string report_summary(const RunReport& report);

// Writes report_json() to `path`, by write_output()'s rules and errors.
Status write_report(const RunReport& report, const std::filesystem::path& path);

}  // namespace k3::cli
