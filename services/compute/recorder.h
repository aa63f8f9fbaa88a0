// Writes what the model computes to a recording, until it is full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>

#include "common/base/result.h"
#include "services/compute/pass_observer.h"
#include "services/compute/recording.h"

namespace k3::compute {

// Every frame is in the file when the call returns. When the next frame would not leave room for
// the end within `max_bytes`, the recording is ended with a notice in the log, and what follows is
// not seen. Errors: kOutput naming the path.
class Recorder final : public PassObserver {
 public:
  static Result<std::unique_ptr<Recorder>> create(const std::filesystem::path& path,
                                                  std::uint64_t max_bytes,
                                                  const RecordedStart& start, std::size_t vocab);
  ~Recorder() override;  // ends the recording

  Status pass_begun(std::span<const Row> rows) override;
  Status layer_done(int layer, std::span<const float> activations,
                    std::span<const Route> routes) override;
  Status pass_done(std::span<const float> logits) override;

 private:
  Recorder(RecordingWriter writer, std::uint64_t max_bytes, std::size_t vocab)
      : writer_(std::move(writer)), max_bytes_(max_bytes), vocab_(vocab) {}
  Status add(const RecordedFrame& frame);

  RecordingWriter writer_;
  std::uint64_t max_bytes_;
  std::size_t vocab_;
  std::map<const Session*, std::uint32_t> sessions_;  // numbers, in order of appearance
  bool ended_ = false;
};

// The bits of `values`.
std::vector<std::uint32_t> bits_of(std::span<const float> values);

// What a layer computed, as it is recorded.
RecordedLayer recorded_layer(int layer, std::span<const float> activations,
                             std::span<const Route> routes);

// What a pass ended with, as it is recorded; `logits` is whole rows of `vocab`.
RecordedDone recorded_done(std::span<const float> logits, std::size_t vocab);

}  // namespace k3::compute
