// Test aid: makes chosen reads fail, return wrong bytes, or take long, inside the reader itself.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "common/base/result.h"

namespace k3 {

// Consulted by ReadEngine when the environment variable K3_READ_FAULTS names a file. The file is
// read again at every job, so a test switches faults on and off in a running process. One fault a
// line:
//   error TEXT        a read whose label contains TEXT fails with EIO
//   corrupt TEXT      one byte of it is flipped
//   delay MS TEXT     it takes MS milliseconds longer
// An absent file means no faults; a malformed line is an error of every read.
class ReadFaults {
 public:
  // Nothing when K3_READ_FAULTS is unset.
  static std::optional<ReadFaults> from_environment();

  // Applies the faults that match `label` to bytes just read. Any thread.
  Status apply(std::string_view label, std::span<std::byte> bytes) const;

 private:
  explicit ReadFaults(std::filesystem::path file) : file_(std::move(file)) {}
  std::filesystem::path file_;
};

}  // namespace k3
