// The records of trunk.k3t (docs/formats.md), shared by its writer and its reader.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/hash.h"
#include "common/checkpoint/binary_file.h"

namespace k3::packed {

inline constexpr std::array<char, 8> kMagic = {'K', '3', 'T', 'R', 'U', 'N', 'K', '\0'};
inline constexpr std::uint32_t kVersion = 2;
inline constexpr std::uint64_t kUnitAlignment = 4096;

// The file begins with FileHeader, one FileUnit a unit, the FileBlocks and the checksums of the
// embedding's rows; units follow, each at a multiple of kUnitAlignment.
struct FileHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t layers;  // in use when it was packed
  std::uint32_t units;
  std::uint32_t blocks;
  std::uint32_t head_unit;
  std::uint32_t embedding_rows;
  std::uint64_t file_bytes;
  std::array<char, kFingerprintChars> fingerprint;
  std::uint64_t table_checksum;   // XXH3-64 of units, blocks and embedding checksums
  std::uint64_t header_checksum;  // XXH3-64 of the bytes before this field
};
static_assert(sizeof(FileHeader) == 88);
static_assert(offsetof(FileHeader, header_checksum) + sizeof(std::uint64_t) == sizeof(FileHeader));

struct FileUnit {
  std::uint64_t offset;  // in the file
  std::uint64_t bytes;
  std::uint64_t checksum;  // XXH3-64 of the unit's bytes, padding included
  std::uint32_t blocks;    // they follow those of the unit before
  std::uint32_t reserved;  // 0
};
static_assert(sizeof(FileUnit) == 32);

struct FileBlock {
  std::uint64_t offset;  // in the unit
  std::uint64_t length;
  std::uint32_t tensor;  // index in the trunk order
  std::uint32_t first_row;
  std::uint32_t rows;
  std::uint32_t encoding;
};
static_assert(sizeof(FileBlock) == 32);

inline std::uint64_t header_checksum(const FileHeader& header) {
  return checksum(
      std::as_bytes(std::span(&header, 1)).first(offsetof(FileHeader, header_checksum)));
}

}  // namespace k3::packed
