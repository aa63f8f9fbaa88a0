#include "services/experts/expert_trace.h"

#include <charconv>
#include <cstring>
#include <optional>
#include <sstream>
#include <string>

#include "common/base/file.h"

namespace k3::experts {
namespace {

constexpr std::string_view kHeader = "k3-expert-trace 1";
constexpr std::size_t kMaxTraceBytes = std::size_t{4} << 30;

std::optional<TracePhase> phase_of(std::string_view word) {
  if (word == "p") return TracePhase::kPrefill;
  if (word == "d") return TracePhase::kDecode;
  if (word == "u") return TracePhase::kUnknown;
  return std::nullopt;
}

std::optional<TraceRecord> parse_words(const std::string& line) {
  std::istringstream in(line);
  std::string word;
  in >> word;
  const std::optional<TracePhase> phase = phase_of(word);
  if (!phase) return std::nullopt;
  std::vector<std::uint32_t> numbers;
  while (in >> word) {
    std::uint32_t number = 0;
    const char* const end = word.data() + word.size();
    const auto [rest, error] = std::from_chars(word.data(), end, number);
    if (error != std::errc() || rest != end) return std::nullopt;
    numbers.push_back(number);
  }
  if (numbers.size() < 2) return std::nullopt;
  return TraceRecord{*phase, numbers.front(), {numbers.begin() + 1, numbers.end()}};
}

Result<TraceRecord> parse_line(const std::string& line, std::string_view where) {
  if (std::optional<TraceRecord> record = parse_words(line)) return std::move(*record);
  return fail(ErrorCode::kUsage, "{}: \"{}\": expected p, d or u, a layer, and experts", where,
              line);
}

Result<std::vector<TraceRecord>> parse_lines(const std::string& text, const std::string& path) {
  std::vector<TraceRecord> records;
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);  // the header
  for (std::size_t number = 2; std::getline(in, line); ++number) {
    if (in.eof()) break;  // cut short: every whole line ends
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
  std::ifstream file(path, std::ios::binary);
  std::string first;
  std::getline(file, first);
  if (!first.empty() && first != kHeader) {
    return fail(ErrorCode::kUsage, "{}: not an expert trace to be added to", path.string());
  }
  file.clear();
  file.seekg(0, std::ios::end);
  const auto size = static_cast<std::uintmax_t>(file.tellg());
  std::uintmax_t whole = size;
  for (; whole > 0; --whole) {
    file.seekg(static_cast<std::streamoff>(whole - 1));
    if (file.get() == '\n') break;
  }
  std::error_code error;
  if (whole != size) std::filesystem::resize_file(path, whole, error);
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
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) K3_TRY(drop_cut_line(path));
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
