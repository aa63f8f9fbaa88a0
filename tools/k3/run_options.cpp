#include "tools/k3/run_options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <system_error>
#include <utility>

#include "common/base/unique_fd.h"

namespace k3::cli {
namespace {

constexpr std::size_t kMaxPromptBytes = std::size_t{64} << 20;
// The chat format adds fewer ids than this around one user turn.
constexpr std::uint64_t kChatFrameIds = 64;
// What the services take at most.
constexpr double kMostGigabytes = 1e6;

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

CLI::Validator whole_number(std::int64_t lowest, std::int64_t highest) {
  return CLI::Validator(
      [lowest, highest](std::string& text) {
        const auto value = parse_number<std::int64_t>(text);
        if (value && *value >= lowest && *value <= highest) return std::string();
        return fmt::format("expected a whole number from {} to {}, found \"{}\"", lowest, highest,
                           text);
      },
      "WHOLE");
}

CLI::Validator positive_number() {
  return CLI::Validator(
      [](std::string& text) {
        const auto value = parse_number<double>(text);
        if (value && *value > 0 && *value <= kMostGigabytes) return std::string();
        return fmt::format("expected a number above 0 and at most {}, found \"{}\"", kMostGigabytes,
                           text);
      },
      "POSITIVE");
}

void add_prompt_flags(CLI::App& command, RunOptions& options) {
  CLI::Option_group* prompt = command.add_option_group("prompt", "exactly one of");
  prompt->add_option("--ids", options.ids, "prompt as token ids: 1,2,3");
  prompt->add_option("--prompt", options.text, "prompt as text, continued as it stands");
  prompt->add_option("--prompt-file", options.text_file,
                     "file or pipe that holds the prompt's text");
  CLI::Option* chat =
      prompt->add_option("--chat", options.chat, "one user turn in the model's chat format");
  prompt->require_option(1);
  command.add_flag("--no-think", options.no_think, "with --chat: answer without a think part")
      ->needs(chat);
}

void add_output_flags(CLI::App& command, RunOptions& options) {
  command.add_option("--json", options.json, "write the run report to this file");
  command.add_option("--trace", options.trace,
                     "write what every service did when to this file, for chrome://tracing");
  CLI::Option* logits = command.add_option("--dump-logits", options.logits,
                                           "write logits to this file, float32 rows of [vocab]");
  const std::map<std::string, ipc::LogitsWanted> positions = {{"last", ipc::LogitsWanted::kLast},
                                                              {"all", ipc::LogitsWanted::kAll}};
  command
      .add_option("--dump-positions", options.logits_positions,
                  "last: a row per generated token (default); all: a row per position run")
      ->transform(CLI::CheckedTransformer(positions))
      ->needs(logits);
  command.add_flag("-v,--verbose", options.verbose, "a line a token on stderr");
}

std::map<std::string, Preset> preset_names() {
  std::map<std::string, Preset> names;
  for (const NamedPreset& named : kPresets) names.emplace(named.name, named.preset);
  return names;
}

// Flags of a private pipeline that do not change its memory.
std::vector<CLI::Option*> add_worker_flags(CLI::App& command, RunOptions& options) {
  return {
      command.add_option("--threads", options.threads, "compute threads (default: allowed CPUs)")
          ->check(whole_number(1, 1024)),
      command.add_option("--isa", options.isa, "kernel table (default: the best this CPU has)"),
      command
          .add_option("--mla-norm-eps", options.mla_norm_eps,
                      "epsilon of the two MLA low-rank norms (default: 1e-6)")
          ->check(positive_number())};
}

// An id stands for at least one byte, but a byte that is no UTF-8 becomes the three of U+FFFD.
std::uint64_t most_text_ids(std::string_view text) {
  const auto ascii = std::count_if(text.begin(), text.end(), [](char c) { return c >= 0; });
  return 3 * text.size() - 2 * static_cast<std::uint64_t>(ascii);
}

tl::unexpected<Error> unreadable_prompt(const std::filesystem::path& path,
                                        std::string_view reason) {
  return fail(ErrorCode::kUsage, "--prompt-file {}: {}", path.string(), reason);
}

// Reads to the end: a pipe or terminal does not say how much there is.
Result<std::string> read_prompt_file(const std::filesystem::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return unreadable_prompt(path, std::strerror(errno));
  std::string text;
  std::vector<char> buffer(std::size_t{1} << 16);
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unreadable_prompt(path, std::strerror(errno));
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
    if (text.size() > kMaxPromptBytes) {
      return unreadable_prompt(path, fmt::format("more than {} bytes", kMaxPromptBytes));
    }
  }
}

}  // namespace

std::vector<CLI::Option*> add_memory_flags(CLI::App& command, RunOptions& options) {
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  return {command.add_option("--work", options.work,
                             "directory of the expert index (default: MODEL/.k3)"),
          command.add_option("--trunk", options.trunk,
                             "directory of the packed trunk (default: the one in --work, if any)"),
          command
              .add_option("--preset", options.preset,
                          "memory of the whole pipeline: auto (default, 80 % of what is free), "
                          "floor, laptop (8 GB), desktop (32), workstation (96), server (128), max")
              ->transform(CLI::CheckedTransformer(preset_names())),
          command
              .add_option("--trunk-gb", options.trunk_gb,
                          "memory for the trunk in GB (default: from the preset)")
              ->check(positive_number()),
          command
              .add_option("--cache-gb", options.cache_gb,
                          "memory for the expert cache in GB (default: from the preset)")
              ->check(positive_number()),
          command
              .add_option("--experts", options.experts,
                          "cache: experts in a cache of their own (default); pagecache: in the "
                          "kernel's page cache; or the program of another service")
              ->transform(CLI::Transformer(std::map<std::string, std::string>{
                  {"cache", kExpertsBinary}, {"pagecache", kPageCacheBinary}})),
          command
              .add_option("--unit-mb", options.unit_mb,
                          "unit size in MB when streaming from the shards")
              ->check(positive_number()),
          command.add_option("--chunk", options.chunk, "prompt positions a prefill pass takes")
              ->check(whole_number(1, 4096)),
          command
              .add_option("--layers", options.layers,
                          "use only the first N layers of a partial download; not the model")
              ->check(whole_number(1, kMaxInt))};
}

void add_run_flags(CLI::App& command, RunOptions& options) {
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  CLI::Option_group* target = command.add_option_group("target", "at least one of");
  target->add_option("--model", options.model, "checkpoint directory");
  CLI::Option* pipeline =
      target->add_option("--pipeline", options.pipeline,
                         "run directory of a running pipeline (default: start a private one)");
  target->require_option(1, 2);
  add_prompt_flags(command, options);
  command.add_option("--gen", options.max_tokens, "most tokens to generate")
      ->required()
      ->check(whole_number(1, kMaxInt));
  command.add_option("--stop-id", options.stop_ids, "end after this id; may be given repeatedly")
      ->check(whole_number(0, kMaxInt))
      ->take_all();
  command.add_flag("--recompute", options.recompute,
                   "carry no state: run the whole prefix for every token (for validation)");
  command
      .add_option("--cache-policy", options.cache_policy,
                  "which expert gives up its place in the cache: recurrence (default) or lru")
      ->check(CLI::IsMember({"recurrence", "lru"}))
      ->excludes(pipeline);
  command
      .add_option("--trace-experts", options.expert_trace,
                  "add which experts were needed, and when, to this expert trace")
      ->excludes(pipeline);
  CLI::Option* record =
      command
          .add_option("--record", options.record, "record what every pass computes to this file")
          ->excludes(pipeline);
  command
      .add_option("--record-max-mb", options.record_max_mb,
                  "largest recording in MB (10^6 bytes, default 1000); it ends there")
      ->check(CLI::Range(0.001, 1e9))
      ->needs(record);
  for (CLI::Option* flag : add_memory_flags(command, options)) flag->excludes(pipeline);
  for (CLI::Option* flag : add_worker_flags(command, options)) flag->excludes(pipeline);
  add_output_flags(command, options);
}

std::uint64_t Prompt::most_ids() const {
  switch (kind) {
    case Kind::kIds:
      return ids.size();
    case Kind::kText:
      return most_text_ids(text);
    case Kind::kChat:
      return most_text_ids(text) + kChatFrameIds;
  }
  return 0;
}

Result<std::vector<std::int32_t>> parse_ids(std::string_view list) {
  std::vector<std::int32_t> ids;
  std::size_t begin = 0;
  while (begin <= list.size()) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view item = list.substr(begin, end - begin);
    const auto id = parse_number<std::int32_t>(item);
    if (!id || *id < 0) {
      return fail(ErrorCode::kUsage,
                  "--ids {}: \"{}\" is not a token id; expected a list as in 1,2,3", list, item);
    }
    ids.push_back(*id);
    begin = end + 1;
  }
  return ids;
}

Result<Prompt> read_prompt(const RunOptions& options) {
  Prompt prompt;
  if (options.ids) {
    K3_ASSIGN(prompt.ids, parse_ids(*options.ids));
    return prompt;
  }
  prompt.kind = options.chat ? Prompt::Kind::kChat : Prompt::Kind::kText;
  prompt.thinking = !options.no_think;
  if (options.text_file) {
    K3_ASSIGN(prompt.text, read_prompt_file(*options.text_file));
  } else {
    prompt.text = options.chat ? *options.chat : options.text.value_or("");
  }
  if (prompt.text.empty()) {
    return fail(ErrorCode::kUsage, "the prompt is empty: at least one token is needed");
  }
  return prompt;
}

Status check_ids(const std::vector<std::int32_t>& ids, std::uint32_t vocab, std::string_view flag) {
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::uint32_t>(id) >= vocab) {
      return fail(ErrorCode::kUsage, "{} {}: the model's ids are 0 to {}", flag, id, vocab - 1);
    }
  }
  return {};
}

}  // namespace k3::cli
