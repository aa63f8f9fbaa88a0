// A large file that appears under its name only when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace k3 {

// Writes to PATH.partial; commit() syncs it and renames it to PATH. Without commit() the partial
// file is removed and an existing PATH stays as it was. Move-only; one thread.
class OutputFile {
 public:
  enum class Space {
    kReserved,  // all of it taken first, so that a full disk is found before any work is done
    kAsNeeded   // a sparse file: whole 64 KiB of zeros are left out and take no disk
  };

  // Every byte reads as zero until written; each is written at most once. Errors: kOutput naming
  // the file, and the bytes needed and free where they do not fit, or that another process is
  // writing the same file.
  static Result<OutputFile> create(const std::filesystem::path& path, std::uint64_t bytes,
                                   Space space = Space::kReserved);

  OutputFile(OutputFile&& other) noexcept = default;
  OutputFile& operator=(OutputFile&& other) = delete;
  ~OutputFile();

  // Errors: kOutput naming file, offset and errno.
  Status write(std::uint64_t offset, std::span<const std::byte> data);

  // Gives back what was reserved beyond `bytes`. Errors: kOutput.
  Status cut(std::uint64_t bytes);

  // The file is complete. Errors: kOutput; PATH is then as it was.
  Status commit();

 private:
  OutputFile() = default;

  std::filesystem::path path_;
  std::filesystem::path partial_;
  Space space_ = Space::kReserved;
  UniqueFd fd_;  // invalid once committed or moved from
};

}  // namespace k3
