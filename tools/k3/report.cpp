#include "tools/k3/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/k3/output_file.h"

namespace k3::cli {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string seconds(std::optional<double> value) {
  return value ? fmt::format("{:.3f} s", *value) : std::string("-");
}

}  // namespace

std::string human_bytes(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= 1'000'000'000) return fmt::format("{:.3f} GB", value / 1e9);
  if (bytes >= 1'000'000) return fmt::format("{:.3f} MB", value / 1e6);
  return fmt::format("{:.3f} kB", value / 1e3);
}

std::string report_json(const RunReport& report) {
  const Json json = {
      {"model", or_null(report.model)},
      {"fingerprint", report.fingerprint},
      {"layers", report.layers},
      {"model_layers", report.model_layers},
      {"isa", report.isa},
      {"threads", report.threads},
      {"budgets", {{"trunk", report.trunk_bytes}, {"experts", report.cache_bytes}}},
      {"prompt_ids", report.prompt_ids},
      {"generated_ids", report.generated_ids},
      {"text", or_null(report.text)},
      {"finish_reason", report.finish_reason},
      {"prefill_seconds", or_null(report.prefill_seconds)},
      {"seconds_per_token", or_null(report.seconds_per_token)},
      {"bytes_read", {{"trunk", report.trunk_bytes_read}, {"experts", report.experts_bytes_read}}},
      {"expert_requests",
       {{"hits", report.hits}, {"prefetched", report.prefetched}, {"misses", report.misses}}},
      {"restarts", report.restarts},
      {"peak_memory_bytes", report.peak_memory_bytes},
  };
  // Paths need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string report_summary(const RunReport& report) {
  std::string out;
  const auto add = [&out](const std::string& line) { out += line + "\n"; };
  add(
      fmt::format("{} tokens in {:.3f} s ({}): prefill of {} positions {}, then {} a token "
                  "(median {})",
                  report.generated_ids.size(), report.total_seconds, report.finish_reason,
                  report.prompt_ids.size(), seconds(report.prefill_seconds),
                  seconds(report.seconds_per_token), seconds(report.median_seconds)));
  add(fmt::format("read: trunk {}, experts {}", human_bytes(report.trunk_bytes_read),
                  human_bytes(report.experts_bytes_read)));
  add(fmt::format("experts: {} hits, {} prefetched, {} misses", report.hits, report.prefetched,
                  report.misses));
  add(
      fmt::format("time: compute {:.3f} s, waiting for trunk {:.3f} s, for experts {:.3f} s, "
                  "messaging {:.3f} s",
                  report.compute_seconds, report.wait_trunk_seconds, report.wait_experts_seconds,
                  report.messaging_seconds));
  add(fmt::format("peak memory of all processes: {} (trunk {}, expert cache {})",
                  human_bytes(report.peak_memory_bytes), human_bytes(report.trunk_bytes),
                  human_bytes(report.cache_bytes)));
  add(fmt::format("kernels: {}, {} threads; restarts: {}", report.isa, report.threads,
                  report.restarts));
  if (report.layers < report.model_layers) {
    add(fmt::format("only {} of {} layers ran: this output is not the model's", report.layers,
                    report.model_layers));
  }
  return out;
}

Status write_report(const RunReport& report, const std::filesystem::path& path) {
  return write_output(path, report_json(report));
}

}  // namespace k3::cli
