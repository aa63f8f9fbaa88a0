// The file of a recording (docs/formats.md, "Recordings"): frames of what passes computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace k3::compute {

// The frames, as proto/recording.capnp describes them; fp32 values are bits.
struct RecordedStart {
  std::string fingerprint;
  std::string config;
  std::uint32_t layers = 0;
  std::uint32_t model_layers = 0;
  float mla_norm_eps = 0;
  std::string isa;
  std::uint32_t threads = 0;
};
struct RecordedRow {
  std::uint32_t session = 0;
  std::uint32_t position = 0;
  std::int32_t id = 0;
  bool logits_wanted = false;
};
struct RecordedPass {
  std::vector<RecordedRow> rows;
};
struct RecordedLayer {
  std::uint32_t layer = 0;
  std::vector<std::uint32_t> activations;
  std::vector<std::uint32_t> experts;
  std::vector<std::uint32_t> weights;
};
struct RecordedDone {
  std::vector<std::uint32_t> logits;
  std::vector<std::int32_t> chosen;
};
struct RecordedEnd {
  bool full = false;
};
using RecordedFrame =
    std::variant<RecordedStart, RecordedPass, RecordedLayer, RecordedDone, RecordedEnd>;

// Writes frames as they come. One thread.
class RecordingWriter {
 public:
  // Replaces a file that is there. kOutput naming the path.
  static Result<RecordingWriter> create(const std::filesystem::path& path);

  // kOutput naming the path.
  Status add(const RecordedFrame& frame);

  // Bytes written, and what a frame would add to them.
  std::uint64_t bytes() const { return bytes_; }
  static std::uint64_t frame_bytes(const RecordedFrame& frame);

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  std::uint64_t bytes_ = 0;
};

// Reads frames in order. One thread.
class RecordingReader {
 public:
  // kUsage when it is no recording; kFailed when it cannot be read.
  static Result<RecordingReader> open(const std::filesystem::path& path);

  // The next frame; the last one is RecordedEnd, and nothing may be asked for after it. kUsage
  // naming file, number and offset of a frame that is cut short, has another checksum, is of an
  // unknown kind, or has bytes after it although it is the end.
  Result<RecordedFrame> next();

 private:
  Result<RecordedFrame> read_frame();

  std::filesystem::path path_;
  UniqueFd fd_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t offset_ = 0;
  std::uint64_t frame_ = 0;
};

}  // namespace k3::compute
