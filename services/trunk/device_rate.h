// How fast the disk under given files is by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/base/result.h"

namespace k3::trunk {

// A run of bytes of a file.
struct FileSpan {
  std::filesystem::path path;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

struct DeviceRate {
  std::uint64_t bytes = 0;
  double seconds = 0;
  bool direct = false;  // O_DIRECT; false where the file system has none: buffered reads
};

// Reads `spans`, widened to whole pages, in pieces of 8 MiB past the page cache (where the file
// system allows; else buffered, so the files should be cold). `threads` threads take one piece
// after another. kWeights naming the file that cannot be read.
Result<DeviceRate> measure_device(const std::vector<FileSpan>& spans, std::size_t threads);

// Asks the kernel to forget the pages of the file; those that somebody maps or locks stay. Returns
// the bytes that stayed. kWeights naming the file.
Result<std::uint64_t> drop_from_page_cache(const std::filesystem::path& path);

}  // namespace k3::trunk
