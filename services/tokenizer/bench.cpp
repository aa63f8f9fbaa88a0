#include "services/tokenizer/bench.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/observe/bench_output.h"
#include "services/tokenizer/decoder.h"
#include "services/tokenizer/encoder.h"
#include "services/tokenizer/vocabulary.h"

namespace k3::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

Result<std::vector<double>> measure(int repeat, const std::function<Status()>& work) {
  std::vector<double> seconds;
  for (int i = 0; i < repeat; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    K3_TRY(work());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    seconds.push_back(taken.count());
  }
  return seconds;
}

// Prints one row of the table and returns it.
Json row(const char* name, std::size_t bytes, std::size_t ids, const std::vector<double>& seconds) {
  const double median = percentile(seconds, 50);
  const double mb_per_second = static_cast<double>(bytes) / 1e6 / median;
  const double tokens_per_second = static_cast<double>(ids) / median;
  fmt::print("{:<7} {:>10} {:>10} {:>10.4f} {:>9.2f} {:>12.0f}\n", name, bytes, ids, median,
             mb_per_second, tokens_per_second);
  return {{"bytes", bytes},
          {"tokens", ids},
          {"median_seconds", median},
          {"mb_per_second", mb_per_second},
          {"tokens_per_second", tokens_per_second},
          {"seconds", seconds}};
}

}  // namespace

Status bench(const BenchOptions& options) {
  K3_ASSIGN(const std::optional<Vocabulary> vocabulary, Vocabulary::load(options.model));
  if (!vocabulary) {
    return fail(ErrorCode::kUsage, "{}: the checkpoint has no vocabulary", options.model.string());
  }
  K3_ASSIGN(const std::string text, read_text_file(options.text, kMaxDecodedBytes));
  if (text.empty()) return fail(ErrorCode::kUsage, "{}: an empty file", options.text.string());

  Encoder encoder(*vocabulary);
  std::vector<std::int32_t> ids;
  K3_ASSIGN(const auto encode_seconds, measure(options.repeat, [&]() -> Status {
              ids.clear();
              encoder.encode(text, false, ids);
              return {};
            }));
  std::size_t decoded_bytes = 0;
  K3_ASSIGN(const auto decode_seconds, measure(options.repeat, [&]() -> Status {
              K3_ASSIGN(const DecodedText decoded, decode_ids(*vocabulary, ids, "", true));
              decoded_bytes = decoded.text.size();
              return {};
            }));

  fmt::print("{:<7} {:>10} {:>10} {:>10} {:>9} {:>12}\n", "", "bytes", "tokens", "median s", "MB/s",
             "tokens/s");
  const Json encode = row("encode", text.size(), ids.size(), encode_seconds);
  const Json decode = row("decode", decoded_bytes, ids.size(), decode_seconds);
  if (!options.json) return {};
  const Json report = {{"file", options.text.string()},
                       {"repeat", options.repeat},
                       {"encode", encode},
                       {"decode", decode}};
  return write_report(*options.json, report.dump(2) + "\n");
}

}  // namespace k3::tokenizer
