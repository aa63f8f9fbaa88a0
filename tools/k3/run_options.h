// The flags of `k3 run` and the prompt they name.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/ipc/messages.h"
#include "common/plan/preset.h"

namespace k3::cli {

// The expert services of this project.
inline constexpr const char* kExpertsBinary = "k3-experts";
inline constexpr const char* kPageCacheBinary = "k3-experts-pagecache";

// As given; absent flags are empty. Ranges are checked while parsing.
struct RunOptions {
  std::optional<std::filesystem::path> model;
  std::optional<std::filesystem::path> pipeline;  // run directory of a running pipeline
  std::optional<std::filesystem::path> work;
  std::optional<std::filesystem::path> trunk;

  std::optional<std::string> ids;
  std::optional<std::string> text;
  std::optional<std::filesystem::path> text_file;
  std::optional<std::string> chat;
  bool no_think = false;

  std::uint32_t max_tokens = 0;
  std::vector<std::int32_t> stop_ids;
  bool recompute = false;

  Preset preset = Preset::kAuto;
  std::optional<double> trunk_gb;  // decimal gigabytes
  std::optional<double> cache_gb;
  std::string experts = kExpertsBinary;  // program of the expert service
  std::optional<std::string> cache_policy;
  std::optional<double> unit_mb;
  std::optional<double> mla_norm_eps;
  std::optional<int> threads;
  std::optional<int> chunk;
  std::optional<int> layers;
  std::optional<std::string> isa;

  std::optional<std::filesystem::path> json;
  std::optional<std::filesystem::path> record;
  std::optional<double> record_max_mb;
  std::optional<std::filesystem::path> trace;
  std::optional<std::filesystem::path> expert_trace;
  std::optional<std::filesystem::path> logits;
  ipc::LogitsWanted logits_positions = ipc::LogitsWanted::kLast;
  bool verbose = false;
};

// The flags that decide how much memory a private pipeline needs, of `k3 run` and `k3 plan`.
// `options` outlives parsing.
std::vector<CLI::Option*> add_memory_flags(CLI::App& command, RunOptions& options);

// Declares every flag of `k3 run` on `command`; `options` outlives parsing. A value that is out of
// range, or a combination that makes no sense, is a CLI::ParseError naming it.
void add_run_flags(CLI::App& command, RunOptions& options);

struct Prompt {
  enum class Kind { kIds, kText, kChat };
  Kind kind = Kind::kIds;
  std::vector<std::int32_t> ids;  // kIds
  std::string text;               // kText, kChat
  bool thinking = true;           // kChat

  // No encoding of the prompt has more ids than this.
  std::uint64_t most_ids() const;
};

// "1,2,3" to ids. kUsage naming the first item that is not a whole number from 0 to 2^31-1.
Result<std::vector<std::int32_t>> parse_ids(std::string_view list);

// The one prompt `options` holds; reads --prompt-file, which may be a pipe, to its end. kUsage when
// it is empty, or naming a file that cannot be read or holds more than 64 MiB.
Result<Prompt> read_prompt(const RunOptions& options);

// kUsage naming the first of `ids` that is not below `vocab`, and `flag`.
Status check_ids(const std::vector<std::int32_t>& ids, std::uint32_t vocab, std::string_view flag);

}  // namespace k3::cli
