#include "services/compute/recorder.h"

#include <spdlog/spdlog.h>

#include <bit>

#include "services/compute/generator.h"

namespace k3::compute {

std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) bits[i] = std::bit_cast<std::uint32_t>(values[i]);
  return bits;
}

RecordedLayer recorded_layer(int layer, std::span<const float> activations,
                             std::span<const Route> routes) {
  RecordedLayer frame{.layer = static_cast<std::uint32_t>(layer),
                      .activations = bits_of(activations),
                      .experts = {},
                      .weights = {}};
  for (const Route& route : routes) {
    frame.experts.insert(frame.experts.end(), route.experts.begin(), route.experts.end());
    const std::vector<std::uint32_t> weights = bits_of(route.weights);
    frame.weights.insert(frame.weights.end(), weights.begin(), weights.end());
  }
  return frame;
}

RecordedDone recorded_done(std::span<const float> logits, std::size_t vocab) {
  RecordedDone frame{.logits = bits_of(logits), .chosen = {}};
  for (std::size_t first = 0; first < logits.size(); first += vocab) {
    frame.chosen.push_back(choose_greedily(logits.subspan(first, vocab), 0).value_or(-1));
  }
  return frame;
}

Result<std::unique_ptr<Recorder>> Recorder::create(const std::filesystem::path& path,
                                                   std::uint64_t max_bytes,
                                                   const RecordedStart& start, std::size_t vocab) {
  K3_ASSIGN(RecordingWriter writer, RecordingWriter::create(path));
  std::unique_ptr<Recorder> recorder(new Recorder(std::move(writer), max_bytes, vocab));
  K3_TRY(recorder->add(start));
  return recorder;
}

Recorder::~Recorder() {
  if (ended_) return;
  if (const Status status = writer_.add(RecordedEnd{.full = false}); !status) {
    spdlog::error("recording_failed error=\"{}\"", status.error().message);
  }
}

Status Recorder::add(const RecordedFrame& frame) {
  if (ended_) return {};
  const std::uint64_t needed =
      RecordingWriter::frame_bytes(frame) + RecordingWriter::frame_bytes(RecordedEnd{});
  if (needed <= max_bytes_ && writer_.bytes() <= max_bytes_ - needed) return writer_.add(frame);
  ended_ = true;
  spdlog::warn("recording_full bytes={} limit={}", writer_.bytes(), max_bytes_);
  return writer_.add(RecordedEnd{.full = true});
}

Status Recorder::pass_begun(std::span<const Row> rows) {
  RecordedPass pass;
  for (const Row& row : rows) {
    const auto next = static_cast<std::uint32_t>(sessions_.size());
    const auto session = sessions_.try_emplace(row.session, next).first->second;
    pass.rows.push_back({session, row.position, row.id, row.logits_wanted});
  }
  return add(pass);
}

Status Recorder::layer_done(int layer, std::span<const float> activations,
                            std::span<const Route> routes) {
  return ended_ ? Status{} : add(recorded_layer(layer, activations, routes));
}

Status Recorder::pass_done(std::span<const float> logits) {
  return ended_ ? Status{} : add(recorded_done(logits, vocab_));
}

}  // namespace k3::compute
