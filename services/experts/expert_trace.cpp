#include "services/experts/expert_trace.h"

#include <cstring>
#include <set>
#include <sstream>
#include <string>

#include "common/base/file.h"

namespace k3::experts {
namespace {

constexpr std::string_view kHeader = "k3-expert-trace 1";
constexpr std::size_t kMaxTraceBytes = std::size_t{4} << 30;

Result<TraceRecord> parse_line(const std::string& line, std::string_view where) {
  std::istringstream in(line);
  std::string phase;
  TraceRecord record;
  in >> phase >> record.layer;
  if (in && (phase == "p" || phase == "d" || phase == "u")) {
    record.phase = phase == "p"   ? TracePhase::kPrefill
                   : phase == "d" ? TracePhase::kDecode
                                  : TracePhase::kUnknown;
    for (std::uint32_t expert = 0; in >> expert;) record.experts.push_back(expert);
    if (in.eof() && !record.experts.empty()) return record;
  }
  return fail(ErrorCode::kUsage, "{}: \"{}\": expected p, d or u, a layer, and experts", where,
              line);
}

Result<std::vector<TraceRecord>> parse_lines(const std::string& text, const std::string& path) {
  std::vector<TraceRecord> records;
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);  // the header
  for (std::size_t number = 2; std::getline(in, line); ++number) {
    K3_ASSIGN(TraceRecord record, parse_line(line, fmt::format("{} line {}", path, number)));
    records.push_back(std::move(record));
  }
  return records;
}

Result<std::vector<TraceRecord>> parse_pairs(const std::string& bytes, std::size_t top_k,
                                             const std::string& path) {
  constexpr std::size_t kPairBytes = 2 * sizeof(std::uint32_t);
  const std::size_t record_bytes = top_k * kPairBytes;
  if (record_bytes == 0 || bytes.size() % record_bytes != 0) {
    return fail(ErrorCode::kUsage,
                "{}: {} bytes: expected the line \"{}\" first, or records of {} pairs of int32",
                path, bytes.size(), kHeader, top_k);
  }
  std::vector<TraceRecord> records;
  for (std::size_t at = 0; at < bytes.size(); at += kPairBytes) {
    std::uint32_t pair[2];
    std::memcpy(pair, bytes.data() + at, kPairBytes);
    if (at % record_bytes == 0) records.push_back({TracePhase::kUnknown, pair[0], {}});
    if (records.back().layer != pair[0]) {
      return fail(ErrorCode::kUsage, "{} pair {}: layer {} among the {} experts of layer {}", path,
                  at / kPairBytes, pair[0], top_k, records.back().layer);
    }
    records.back().experts.push_back(pair[1]);
  }
  return records;
}

// Ends the trace at `path` after its last whole line.
Status drop_cut_line(const std::filesystem::path& path) {
  K3_ASSIGN(const std::string content, read_text_file(path, kMaxTraceBytes));
  const std::string header = std::string(kHeader) + "\n";
  if (!content.starts_with(header) && !header.starts_with(content)) {
    return fail(ErrorCode::kUsage, "{}: not an expert trace to be added to", path.string());
  }
  const std::size_t newline = content.rfind('\n');
  const std::size_t whole = newline == std::string::npos ? 0 : newline + 1;
  std::error_code error;
  if (whole != content.size()) std::filesystem::resize_file(path, whole, error);
  if (error) return fail(ErrorCode::kOutput, "{}: {}", path.string(), error.message());
  return {};
}

}  // namespace

std::string_view name_of(TracePhase phase) {
  switch (phase) {
    case TracePhase::kPrefill:
      return "prefill";
    case TracePhase::kDecode:
      return "decode";
    case TracePhase::kUnknown:
      return "unknown";
  }
  return "";
}

Result<std::vector<TraceRecord>> read_trace(const std::filesystem::path& path, std::size_t top_k) {
  K3_ASSIGN(const std::string content, read_text_file(path, kMaxTraceBytes));
  if (content.starts_with(std::string(kHeader) + "\n")) return parse_lines(content, path.string());
  return parse_pairs(content, top_k, path.string());
}

Result<TraceWriter> TraceWriter::open(const std::filesystem::path& path) {
  if (std::filesystem::is_regular_file(path)) K3_TRY(drop_cut_line(path));
  TraceWriter writer;
  writer.path_ = path;
  writer.file_.open(path, std::ios::app | std::ios::ate);
  if (writer.file_ && writer.file_.tellp() == 0) writer.file_ << kHeader << std::endl;
  if (!writer.file_) return fail(ErrorCode::kOutput, "{}: cannot be written", path.string());
  return writer;
}

Status TraceWriter::add(const TraceRecord& record) {
  std::string line = fmt::format("{} {}", name_of(record.phase).front(), record.layer);
  for (const std::uint32_t expert : record.experts) line += fmt::format(" {}", expert);
  file_ << line + "\n" << std::flush;
  if (!file_) return fail(ErrorCode::kOutput, "{}: cannot be written", path_.string());
  return {};
}

}  // namespace k3::experts
