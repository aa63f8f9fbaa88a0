// The header of one safetensors shard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace k3 {

enum class DType : std::uint8_t { kF32, kBf16, kF16, kU8, kI8, kI16, kI32, kI64, kF64, kBool };

std::string_view name_of(DType dtype);
std::uint64_t bytes_of(DType dtype);  // of one element

struct TensorEntry {
  std::string name;  // unescaped
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;  // empty for a scalar
  std::uint64_t offset = 0;          // of the first byte, from the start of the file
  std::uint64_t bytes = 0;
};

// Parses the JSON header `json` of a file of `file_size` bytes whose data begins at `data_start`.
// Tensors come back in order of offset. kWeights naming file, tensor(s) and numbers for: invalid or
// trailing JSON, unknown dtype, product overflow, span not equal to the shape, span outside the
// file, overlaps, gaps, bytes after the last tensor, a name listed twice. `__metadata__` is
// skipped.
Result<std::vector<TensorEntry>> parse_safetensors_header(std::string_view json,
                                                          std::uint64_t data_start,
                                                          std::uint64_t file_size,
                                                          const std::string& file);

struct ShardHeader {
  std::filesystem::path path;
  std::uint64_t file_bytes = 0;
  std::uint64_t data_start = 0;
  std::string json;                  // raw header text
  std::vector<TensorEntry> tensors;  // in order of offset
};

// Reads and parses the header of `path`; refuses a header larger than the file or than 256 MiB
// before allocating it.
Result<ShardHeader> read_shard_header(const std::filesystem::path& path);

}  // namespace k3
