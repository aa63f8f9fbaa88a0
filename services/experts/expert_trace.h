// Which experts were asked for, in order (docs/formats.md, "Expert traces").
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace k3::experts {

// kUnknown: the recording did not tell.
enum class TracePhase : std::uint8_t { kPrefill, kDecode, kUnknown };

// "prefill", "decode", "unknown".
std::string_view name_of(TracePhase phase);

// The experts that were needed together, of one layer.
struct TraceRecord {
  TracePhase phase = TracePhase::kUnknown;
  std::uint32_t layer = 0;
  std::vector<std::uint32_t> experts;
};

// Reads a trace of lines, or one of pairs of int32 without a header, of which every `top_k` pairs
// in a row are a record. kUsage naming file and line, or file and pair, of what is malformed or, in
// pairs, has no `top_k` experts of one layer; kFailed when the file cannot be read.
Result<std::vector<TraceRecord>> read_trace(const std::filesystem::path& path, std::size_t top_k);

// Writes a trace of lines. One thread.
class TraceWriter {
 public:
  // Adds to a trace that is there, so that a restarted service goes on with it; a line cut short by
  // its death is dropped. kUsage when the file is no trace of lines, kOutput naming the path.
  static Result<TraceWriter> open(const std::filesystem::path& path);

  // A whole line at once. kOutput naming the path.
  Status add(const TraceRecord& record);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace k3::experts
