// The fault file: parsing and application; see read_faults.h.
#include "common/storage/read_faults.h"

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "common/base/file.h"

namespace k3 {
namespace {

constexpr std::size_t kMaxFaultFileBytes = 64 * 1024;

struct Fault {
  enum class Kind { kError, kCorrupt, kDelay };
  Kind kind = Kind::kError;
  std::chrono::milliseconds delay{};
  std::string_view text;
};

// Cuts the text before the first `separator` off `rest`.
std::string_view take_until(std::string_view& rest, char separator) {
  const std::size_t end = rest.find(separator);
  const std::string_view taken = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return taken;
}

Result<Fault> parse_line(std::string_view line, const std::filesystem::path& file) {
  Fault fault;
  std::string_view rest = line;
  const std::string_view word = take_until(rest, ' ');
  bool legal = true;
  if (word == "error") {
    fault.kind = Fault::Kind::kError;
  } else if (word == "corrupt") {
    fault.kind = Fault::Kind::kCorrupt;
  } else if (word == "delay") {
    fault.kind = Fault::Kind::kDelay;
    const std::string_view number = take_until(rest, ' ');
    std::uint32_t delay_ms = 0;
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), delay_ms);
    legal = parsed.ec == std::errc() && parsed.ptr == number.data() + number.size();
    fault.delay = std::chrono::milliseconds(delay_ms);
  } else {
    legal = false;
  }
  fault.text = rest;
  if (!legal || rest.empty()) {
    return fail(ErrorCode::kUsage,
                "{}: \"{}\" is no fault (error TEXT, corrupt TEXT, delay MS TEXT)", file.string(),
                line);
  }
  return fault;
}

}  // namespace

std::optional<ReadFaults> ReadFaults::from_environment() {
  const char* file = std::getenv("K3_READ_FAULTS");
  if (file == nullptr || *file == '\0') return std::nullopt;
  return ReadFaults(file);
}

Status ReadFaults::apply(std::string_view label, std::span<std::byte> bytes) const {
  const Result<std::string> content = read_text_file(file_, kMaxFaultFileBytes);
  if (!content && !std::filesystem::exists(file_)) return {};
  if (!content) return tl::unexpected(content.error());
  Status status;
  std::string_view rest = *content;
  while (!rest.empty()) {
    const std::string_view line = take_until(rest, '\n');
    if (line.empty()) continue;
    K3_ASSIGN(const Fault fault, parse_line(line, file_));
    if (label.find(fault.text) == std::string_view::npos) continue;
    switch (fault.kind) {
      case Fault::Kind::kError:
        status = fail(ErrorCode::kWeights, "Input/output error (injected)");
        break;
      case Fault::Kind::kCorrupt:
        if (!bytes.empty()) bytes[bytes.size() / 2] ^= std::byte{1};
        break;
      case Fault::Kind::kDelay:
        std::this_thread::sleep_for(fault.delay);
        break;
    }
  }
  return status;
}

}  // namespace k3
