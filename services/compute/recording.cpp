#include "services/compute/recording.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <fcntl.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "common/base/file.h"
#include "common/base/hash.h"
#include "recording.capnp.h"

namespace k3::compute {

namespace {

constexpr std::string_view kMagic = "K3REC 1\n";

// Before each frame.
struct FrameHead {
  std::uint64_t bytes = 0;  // of the message
  std::uint64_t checksum = 0;
};

static_assert(std::endian::native == std::endian::little, "frame heads are little-endian");

template <class Values, class List>
void fill(const Values& values, List list) {
  for (std::size_t i = 0; i < values.size(); ++i) list.set(static_cast<unsigned>(i), values[i]);
}

template <class Value, class List>
std::vector<Value> values_of(List list) {
  std::vector<Value> values(list.size());
  for (unsigned i = 0; i < list.size(); ++i) values[i] = list[i];
  return values;
}

void write(const RecordedStart& start, proto::recording::Frame::Builder frame) {
  auto out = frame.initStart();
  out.setFingerprint(start.fingerprint);
  out.setConfig(start.config);
  out.setLayers(start.layers);
  out.setModelLayers(start.model_layers);
  out.setMlaNormEps(std::bit_cast<std::uint32_t>(start.mla_norm_eps));
  out.setIsa(start.isa);
  out.setThreads(start.threads);
}

void write(const RecordedPass& pass, proto::recording::Frame::Builder frame) {
  auto rows = frame.initPass().initRows(static_cast<unsigned>(pass.rows.size()));
  for (unsigned i = 0; i < rows.size(); ++i) {
    rows[i].setSession(pass.rows[i].session);
    rows[i].setPosition(pass.rows[i].position);
    rows[i].setId(pass.rows[i].id);
    rows[i].setLogitsWanted(pass.rows[i].logits_wanted);
  }
}

void write(const RecordedLayer& layer, proto::recording::Frame::Builder frame) {
  auto out = frame.initLayer();
  out.setLayer(layer.layer);
  fill(layer.activations, out.initActivations(static_cast<unsigned>(layer.activations.size())));
  fill(layer.experts, out.initExperts(static_cast<unsigned>(layer.experts.size())));
  fill(layer.weights, out.initWeights(static_cast<unsigned>(layer.weights.size())));
}

void write(const RecordedDone& done, proto::recording::Frame::Builder frame) {
  auto out = frame.initDone();
  fill(done.logits, out.initLogits(static_cast<unsigned>(done.logits.size())));
  fill(done.chosen, out.initChosen(static_cast<unsigned>(done.chosen.size())));
}

void write(const RecordedEnd& end, proto::recording::Frame::Builder frame) {
  frame.initEnd().setFull(end.full);
}

void build(const RecordedFrame& frame, capnp::MessageBuilder& message) {
  const auto root = message.initRoot<proto::recording::Frame>();
  std::visit([&](const auto& body) { write(body, root); }, frame);
}

RecordedPass read_pass(proto::recording::Pass::Reader in) {
  RecordedPass pass;
  for (const auto row : in.getRows()) {
    pass.rows.push_back({row.getSession(), row.getPosition(), row.getId(), row.getLogitsWanted()});
  }
  return pass;
}

// Nothing for a kind of frame that is not known.
std::optional<RecordedFrame> read(proto::recording::Frame::Reader frame) {
  switch (frame.which()) {
    case proto::recording::Frame::START: {
      const auto in = frame.getStart();
      return RecordedStart{in.getFingerprint(),
                           in.getConfig(),
                           in.getLayers(),
                           in.getModelLayers(),
                           std::bit_cast<float>(in.getMlaNormEps()),
                           in.getIsa(),
                           in.getThreads()};
    }
    case proto::recording::Frame::PASS:
      return read_pass(frame.getPass());
    case proto::recording::Frame::LAYER: {
      const auto in = frame.getLayer();
      return RecordedLayer{in.getLayer(), values_of<std::uint32_t>(in.getActivations()),
                           values_of<std::uint32_t>(in.getExperts()),
                           values_of<std::uint32_t>(in.getWeights())};
    }
    case proto::recording::Frame::DONE: {
      const auto in = frame.getDone();
      return RecordedDone{values_of<std::uint32_t>(in.getLogits()),
                          values_of<std::int32_t>(in.getChosen())};
    }
    case proto::recording::Frame::END:
      return RecordedEnd{frame.getEnd().getFull()};
  }
  return std::nullopt;
}

// Checksums are right here: what does not parse was written wrong.
Result<RecordedFrame> parse(const std::vector<capnp::word>& words) {
  try {
    capnp::ReaderOptions options;
    options.traversalLimitInWords = words.size() + 64;
    capnp::FlatArrayMessageReader reader({words.data(), words.size()}, options);
    if (auto frame = read(reader.getRoot<proto::recording::Frame>())) return std::move(*frame);
    return fail(ErrorCode::kUsage, "a frame of an unknown kind");
  } catch (const kj::Exception& error) {
    return fail(ErrorCode::kUsage, "{}", error.getDescription().cStr());
  }
}

}  // namespace

Result<RecordingWriter> RecordingWriter::create(const std::filesystem::path& path) {
  RecordingWriter writer;
  writer.path_ = path;
  writer.fd_ = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (writer.fd_.get() < 0) {
    return fail(ErrorCode::kOutput, "{}: {}", path.string(), std::strerror(errno));
  }
  K3_TRY(write_exactly(writer.fd_.get(), 0, std::as_bytes(std::span(kMagic)), path));
  writer.bytes_ = kMagic.size();
  return writer;
}

Status RecordingWriter::add(const RecordedFrame& frame) {
  capnp::MallocMessageBuilder message;
  build(frame, message);
  const kj::Array<capnp::word> words = capnp::messageToFlatArray(message);
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(words.begin()),
                                         words.size() * sizeof(capnp::word));
  const FrameHead head{bytes.size(), checksum(bytes)};
  K3_TRY(write_exactly(fd_.get(), bytes_, std::as_bytes(std::span(&head, 1)), path_));
  K3_TRY(write_exactly(fd_.get(), bytes_ + sizeof(head), bytes, path_));
  bytes_ += sizeof(head) + bytes.size();
  return {};
}

std::uint64_t RecordingWriter::frame_bytes(const RecordedFrame& frame) {
  capnp::MallocMessageBuilder message;
  build(frame, message);
  return sizeof(FrameHead) + capnp::computeSerializedSizeInWords(message) * sizeof(capnp::word);
}

Result<RecordingReader> RecordingReader::open(const std::filesystem::path& path) {
  RecordingReader reader;
  reader.path_ = path;
  K3_ASSIGN(reader.fd_, open_for_reading(path));
  K3_ASSIGN(reader.file_bytes_, k3::file_bytes(reader.fd_.get(), path));
  std::string magic(kMagic.size(), '\0');
  if (reader.file_bytes_ >= magic.size()) {
    K3_TRY(read_exactly(reader.fd_.get(), 0, std::as_writable_bytes(std::span(magic)), path));
  }
  if (magic != kMagic) {
    return fail(ErrorCode::kUsage, "{}: not a recording of version 1", path.string());
  }
  reader.offset_ = magic.size();
  return reader;
}

Result<RecordedFrame> RecordingReader::next() {
  Result<RecordedFrame> frame = read_frame();
  if (frame) return frame;
  return fail(frame.error().code, "{} frame {} at byte {}: {}", path_.string(), frame_, offset_,
              frame.error().message);
}

Result<RecordedFrame> RecordingReader::read_frame() {
  const std::uint64_t left = file_bytes_ - offset_;
  FrameHead head;
  if (left < sizeof(head)) {
    return fail(ErrorCode::kUsage, "the file ends before the end of the recording");
  }
  K3_TRY(read_exactly(fd_.get(), offset_, std::as_writable_bytes(std::span(&head, 1)), path_));
  if (head.bytes > left - sizeof(head) || head.bytes % sizeof(capnp::word) != 0) {
    return fail(ErrorCode::kUsage, "{} bytes, of which the file has {}", head.bytes,
                left - sizeof(head));
  }
  std::vector<capnp::word> words(head.bytes / sizeof(capnp::word));
  const std::span<std::byte> bytes(reinterpret_cast<std::byte*>(words.data()), head.bytes);
  K3_TRY(read_exactly(fd_.get(), offset_ + sizeof(head), bytes, path_));
  if (const std::uint64_t found = checksum(bytes); found != head.checksum) {
    return fail(ErrorCode::kUsage, "checksum {:016x}, expected {:016x}", found, head.checksum);
  }
  K3_ASSIGN(RecordedFrame frame, parse(words));
  const bool last = left == sizeof(head) + head.bytes;
  if (std::holds_alternative<RecordedEnd>(frame) && !last) {
    return fail(ErrorCode::kUsage, "{} bytes after the end of the recording",
                left - sizeof(head) - head.bytes);
  }
  offset_ += sizeof(head) + head.bytes;
  ++frame_;
  return frame;
}

}  // namespace k3::compute
