#include "common/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/hash.h"

namespace k3 {
namespace {

constexpr std::uint64_t kLengthBytes = 8;  // the header's length, little-endian, opens the file
constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{256} << 20;

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::uint64_t bytes;
};

constexpr std::array kDTypes = {
    DTypeInfo{DType::kF32, "F32", 4}, DTypeInfo{DType::kBf16, "BF16", 2},
    DTypeInfo{DType::kF16, "F16", 2}, DTypeInfo{DType::kU8, "U8", 1},
    DTypeInfo{DType::kI8, "I8", 1},   DTypeInfo{DType::kI16, "I16", 2},
    DTypeInfo{DType::kI32, "I32", 4}, DTypeInfo{DType::kI64, "I64", 8},
    DTypeInfo{DType::kF64, "F64", 8}, DTypeInfo{DType::kBool, "BOOL", 1},
};

const DTypeInfo& info_of(DType dtype) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.dtype == dtype) return info;
  }
  K3_CHECK(false, fmt::format("dtype {}", static_cast<int>(dtype)));
}

std::optional<DType> dtype_named(std::string_view name) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == name) return info.dtype;
  }
  return std::nullopt;
}

// Bytes of a tensor; nothing when they do not fit 64 bits.
std::optional<std::uint64_t> checked_bytes(DType dtype, const std::vector<std::uint64_t>& shape) {
  std::uint64_t bytes = bytes_of(dtype);
  for (const std::uint64_t dimension : shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) return std::nullopt;
  }
  return bytes;
}

// The three members of a tensor's JSON object.
struct RawEntry {
  std::optional<std::string_view> dtype;
  std::optional<simdjson::dom::array> shape;
  std::optional<simdjson::dom::array> span;
};

// Nothing when `value` is not an object of exactly these members with these types.
std::optional<RawEntry> raw_entry(const simdjson::dom::element& value) {
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) return std::nullopt;
  RawEntry raw;
  for (const auto& [key, member] : object) {
    std::string_view text;
    simdjson::dom::array list;
    if (key == "dtype" && !raw.dtype && member.get(text) == simdjson::SUCCESS) {
      raw.dtype = text;
    } else if (key == "shape" && !raw.shape && member.get(list) == simdjson::SUCCESS) {
      raw.shape = list;
    } else if (key == "data_offsets" && !raw.span && member.get(list) == simdjson::SUCCESS) {
      raw.span = list;
    } else {
      return std::nullopt;
    }
  }
  if (!raw.dtype || !raw.shape || !raw.span) return std::nullopt;
  return raw;
}

// The list's numbers; nothing when one is not an integer of 64 bits, zero or above.
std::optional<std::vector<std::uint64_t>> numbers_in(const simdjson::dom::array& list) {
  std::vector<std::uint64_t> numbers;
  numbers.reserve(list.size());
  for (const simdjson::dom::element& item : list) {
    std::uint64_t number = 0;
    if (item.get(number) != simdjson::SUCCESS) return std::nullopt;
    numbers.push_back(number);
  }
  return numbers;
}

// Both numbers of a span; nothing when it is not exactly two integers of 64 bits, zero or above.
std::optional<std::pair<std::uint64_t, std::uint64_t>> span_in(const simdjson::dom::array& list) {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  if (list.size() != 2 || list.at(0).get(begin) != simdjson::SUCCESS ||
      list.at(1).get(end) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  return std::pair(begin, end);
}

struct HeaderPlace {
  const std::string& file;
  std::uint64_t data_start;
  std::uint64_t file_size;

  std::uint64_t data_bytes() const { return file_size - data_start; }
};

Result<TensorEntry> read_entry(std::string_view name, const simdjson::dom::element& value,
                               const HeaderPlace& at) {
  const std::optional<RawEntry> raw = raw_entry(value);
  if (!raw) {
    return fail(ErrorCode::kWeights,
                "{}: tensor {}: expected exactly dtype (a string), shape and data_offsets (lists)",
                at.file, name);
  }
  const std::optional<DType> dtype = dtype_named(*raw->dtype);
  if (!dtype) {
    return fail(ErrorCode::kWeights, "{}: tensor {}: unknown dtype \"{}\"", at.file, name,
                *raw->dtype);
  }
  std::optional<std::vector<std::uint64_t>> shape = numbers_in(*raw->shape);
  if (!shape) {
    return fail(ErrorCode::kWeights, "{}: tensor {}: shape {}: expected integers >= 0", at.file,
                name, simdjson::minify(*raw->shape));
  }
  const std::optional<std::pair<std::uint64_t, std::uint64_t>> span = span_in(*raw->span);
  if (!span) {
    return fail(ErrorCode::kWeights, "{}: tensor {}: data_offsets {}: expected two integers >= 0",
                at.file, name, simdjson::minify(*raw->span));
  }
  const auto [begin, end] = *span;
  if (begin > end || end > at.data_bytes()) {
    return fail(ErrorCode::kWeights,
                "{}: tensor {}: bytes {}..{} lie outside the {} data bytes of the file", at.file,
                name, begin, end, at.data_bytes());
  }
  const std::optional<std::uint64_t> bytes = checked_bytes(*dtype, *shape);
  if (!bytes) {
    return fail(ErrorCode::kWeights, "{}: tensor {}: the size of shape {} overflows 64 bits",
                at.file, name, simdjson::minify(*raw->shape));
  }
  if (*bytes != end - begin) {
    return fail(ErrorCode::kWeights, "{}: tensor {}: {} of shape {} is {} bytes, its span holds {}",
                at.file, name, *raw->dtype, simdjson::minify(*raw->shape), *bytes, end - begin);
  }
  return TensorEntry{.name = std::string(name),
                     .dtype = *dtype,
                     .shape = std::move(*shape),
                     .offset = at.data_start + begin,
                     .bytes = *bytes};
}

Status check_names_differ(const std::vector<TensorEntry>& tensors, const std::string& file) {
  // Sorted by hash first: names of one shard differ only near their ends.
  std::vector<std::pair<std::uint64_t, std::string_view>> names;
  names.reserve(tensors.size());
  for (const TensorEntry& tensor : tensors) {
    names.emplace_back(checksum(std::as_bytes(std::span(tensor.name))), tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin == names.end()) return {};
  return fail(ErrorCode::kWeights, "{}: tensor {} is listed twice", file, twin->second);
}

// The tensors, in order of offset, must cover the data without overlap or gap.
Status check_cover(const std::vector<TensorEntry>& tensors, const HeaderPlace& at) {
  std::uint64_t end = at.data_start;
  const TensorEntry* previous = nullptr;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.offset != end) {
      return fail(
          ErrorCode::kWeights, "{}: {} between {}, which ends at byte {}, and {} at byte {}",
          at.file, tensor.offset < end ? "overlap" : "gap",
          previous == nullptr ? "the header" : previous->name, end, tensor.name, tensor.offset);
    }
    end = tensor.offset + tensor.bytes;
    previous = &tensor;
  }
  if (end != at.file_size) {
    return fail(ErrorCode::kWeights, "{}: the last tensor ends at byte {}, the file at {}", at.file,
                end, at.file_size);
  }
  return {};
}

}  // namespace

std::string_view name_of(DType dtype) { return info_of(dtype).name; }
std::uint64_t bytes_of(DType dtype) { return info_of(dtype).bytes; }

Result<std::vector<TensorEntry>> parse_safetensors_header(std::string_view json,
                                                          std::uint64_t data_start,
                                                          std::uint64_t file_size,
                                                          const std::string& file) {
  if (data_start > file_size) {
    return fail(ErrorCode::kWeights, "{}: truncated: data begins at byte {}, the file has {}", file,
                data_start, file_size);
  }
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  // parse() copies the text into a buffer with the padding that the parser reads beyond the end.
  if (const auto error = parser.parse(json.data(), json.size()).get(object);
      error != simdjson::SUCCESS) {
    return fail(ErrorCode::kWeights, "{}: the header of {} bytes is not a JSON object: {}", file,
                json.size(), simdjson::error_message(error));
  }
  const HeaderPlace at{file, data_start, file_size};
  std::vector<TensorEntry> tensors;
  tensors.reserve(object.size());
  for (const auto& [name, value] : object) {
    if (name == "__metadata__") continue;
    K3_ASSIGN(TensorEntry entry, read_entry(name, value, at));
    tensors.push_back(std::move(entry));
  }
  // Empty tensors come before the one that shares their offset; the order is otherwise unique.
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  K3_TRY(check_names_differ(tensors, file));
  K3_TRY(check_cover(tensors, at));
  return tensors;
}

Result<ShardHeader> read_shard_header(const std::filesystem::path& path) {
  const std::string file = path.string();
  K3_ASSIGN(const UniqueFd fd, open_for_reading(path, ErrorCode::kWeights));
  ShardHeader header;
  header.path = path;
  K3_ASSIGN(header.file_bytes, file_bytes(fd.get(), path));
  if (header.file_bytes < kLengthBytes) {
    return fail(ErrorCode::kWeights, "{}: truncated: {} bytes, a header's length alone takes {}",
                file, header.file_bytes, kLengthBytes);
  }
  std::array<std::byte, kLengthBytes> prefix{};
  K3_TRY(read_exactly(fd.get(), 0, prefix, path));
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, prefix.data(), sizeof(header_bytes));
  if (header_bytes > header.file_bytes - kLengthBytes) {
    return fail(ErrorCode::kWeights,
                "{}: truncated or not safetensors: a header of {} bytes in a file of {}", file,
                header_bytes, header.file_bytes);
  }
  if (header_bytes > kMaxHeaderBytes) {
    return fail(ErrorCode::kWeights, "{}: a header of {} bytes, at most {} are accepted", file,
                header_bytes, kMaxHeaderBytes);
  }
  header.json.resize(header_bytes);
  K3_TRY(
      read_exactly(fd.get(), kLengthBytes, std::as_writable_bytes(std::span(header.json)), path));
  header.data_start = kLengthBytes + header_bytes;
  K3_ASSIGN(header.tensors,
            parse_safetensors_header(header.json, header.data_start, header.file_bytes, file));
  return header;
}

}  // namespace k3
