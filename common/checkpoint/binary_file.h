// What trunk.k3t and experts.k3x share: fixed little-endian records, magic and version,
// fingerprint.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/hash.h"
#include "common/base/result.h"

namespace k3 {

static_assert(std::endian::native == std::endian::little, "records are stored as they lie");

inline constexpr std::size_t kFingerprintChars = 32;

inline std::array<char, kFingerprintChars> fingerprint_chars(std::string_view fingerprint) {
  K3_CHECK(fingerprint.size() == kFingerprintChars, fingerprint);
  std::array<char, kFingerprintChars> chars{};
  fingerprint.copy(chars.data(), chars.size());
  return chars;
}

// Appends the bytes of a record that has no padding.
template <class Record>
void append_bytes(std::string& to, const Record& record) {
  static_assert(std::has_unique_object_representations_v<Record>);
  to.append(reinterpret_cast<const char*>(&record), sizeof record);
}

// kWeights when `magic` or `version` is not the one this program writes.
inline Status check_kind(const std::array<char, 8>& magic,
                         const std::array<char, 8>& expected_magic, std::uint32_t version,
                         std::uint32_t expected_version, const std::string& file) {
  if (magic != expected_magic) {
    return fail(ErrorCode::kWeights, "{}: is no {} file", file,
                std::string_view(expected_magic.data(), expected_magic.size()));
  }
  if (version != expected_version) {
    return fail(ErrorCode::kWeights, "{}: format version {}, this program reads {}", file, version,
                expected_version);
  }
  return {};
}

// Takes records off a buffer; never reads past its end. `content` and `file` are borrowed.
class BinaryReader {
 public:
  BinaryReader(std::string_view content, const std::string& file) : rest_(content), file_(file) {}

  const std::string& file() const { return file_; }

  template <class Record>
  Result<Record> take() {
    static_assert(std::has_unique_object_representations_v<Record>);
    K3_TRY(need(1, sizeof(Record)));
    Record record;
    copy_out(&record, sizeof record);
    return record;
  }

  // The bytes are known to be there before anything is allocated.
  template <class Record>
  Result<std::vector<Record>> take_many(std::size_t count) {
    static_assert(std::has_unique_object_representations_v<Record>);
    K3_TRY(need(count, sizeof(Record)));
    std::vector<Record> records(count);
    copy_out(records.data(), count * sizeof(Record));
    return records;
  }

  Result<std::string> take_text(std::size_t bytes) {
    K3_TRY(need(bytes, 1));
    std::string text(rest_.substr(0, bytes));
    rest_.remove_prefix(bytes);
    return text;
  }

 private:
  Status need(std::size_t count, std::size_t bytes_each) const {
    if (count <= rest_.size() / bytes_each) return {};
    return fail(ErrorCode::kWeights, "{}: cut off: {} records of {} bytes expected, {} bytes left",
                file_, count, bytes_each, rest_.size());
  }

  void copy_out(void* to, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, rest_.data(), bytes);
    rest_.remove_prefix(bytes);
  }

  std::string_view rest_;
  const std::string& file_;
};

// Takes the XXH3-64 that ends `content` off it and compares it with the bytes before.
inline Status take_trailing_checksum(std::string_view& content, const std::string& file) {
  std::uint64_t expected = 0;
  if (content.size() < sizeof expected) {
    return fail(ErrorCode::kWeights, "{}: {} bytes, too short for a checksum", file,
                content.size());
  }
  std::memcpy(&expected, content.data() + content.size() - sizeof expected, sizeof expected);
  content.remove_suffix(sizeof expected);
  const std::uint64_t found = checksum(std::as_bytes(std::span(content)));
  if (found == expected) return {};
  return fail(ErrorCode::kWeights, "{}: checksum {:016x}, expected {:016x}: cut off or damaged",
              file, found, expected);
}

}  // namespace k3
