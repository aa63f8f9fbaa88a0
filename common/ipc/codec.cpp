#include "common/ipc/codec.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>
#include <kj/io.h>

#include <cstring>
#include <string>
#include <variant>

#include "common/ipc/codec_parts.h"

namespace k3::ipc {
namespace {

// Words a frame may make us read, as a multiple of its own. Every pointer of a valid frame is
// followed once; the rest is slack against frames whose pointers overlap to look larger.
constexpr std::uint64_t kTraversalFactor = 2;
constexpr int kNestingLimit = 16;

std::string describe(const kj::Exception& error) {
  return {error.getDescription().begin(), error.getDescription().size()};
}

// For messages about a frame: what a stranger calls itself, at a bearable length.
std::string short_sender(proto::Envelope::Reader in) {
  constexpr std::size_t kShown = 64;
  return codec::read_text(in.getSender()).substr(0, kShown);
}

Header read_header(proto::Envelope::Reader in) {
  Header header;
  header.sender = codec::read_text(in.getSender());
  header.incarnation = in.getIncarnation();
  header.sequence = in.getSequence();
  header.in_reply_to = in.getInReplyTo();
  header.trace_id = in.getTraceId();
  header.monotonic_ns = in.getMonotonicNs();
  return header;
}

// The words of a frame, at an address that Cap'n Proto can read from.
class AlignedWords {
 public:
  // `frame` holds whole words and outlives this.
  explicit AlignedWords(std::span<const std::byte> frame)
      : data_(reinterpret_cast<const capnp::word*>(frame.data())),
        words_(frame.size() / sizeof(capnp::word)) {
    if (reinterpret_cast<std::uintptr_t>(data_) % alignof(std::uint64_t) == 0) return;
    copy_ = kj::heapArray<capnp::word>(words_);
    std::memcpy(copy_.begin(), frame.data(), frame.size());
    data_ = copy_.begin();
  }
  kj::ArrayPtr<const capnp::word> get() const { return {data_, words_}; }

 private:
  const capnp::word* data_;
  std::size_t words_;
  kj::Array<capnp::word> copy_;
};

bool is_possible_size(std::size_t bytes) {
  return bytes > 0 && bytes <= kMaxFrameBytes && bytes % sizeof(capnp::word) == 0;
}

capnp::ReaderOptions reader_options(kj::ArrayPtr<const capnp::word> words) {
  capnp::ReaderOptions options;
  options.traversalLimitInWords = words.size() * kTraversalFactor;
  options.nestingLimit = kNestingLimit;
  return options;
}

// The envelope of a whole frame of our major version.
Result<proto::Envelope::Reader> root_of(capnp::FlatArrayMessageReader& reader,
                                        kj::ArrayPtr<const capnp::word> words) {
  if (reader.getEnd() != words.end()) {
    return fail(ErrorCode::kFailed, "malformed frame: {} of {} bytes follow the message",
                (words.end() - reader.getEnd()) * sizeof(capnp::word),
                words.size() * sizeof(capnp::word));
  }
  const auto in = reader.getRoot<proto::Envelope>();
  // First, because nothing after it can be trusted to mean the same in another major version.
  if (in.getProtocolMajor() != kProtocolMajor) {
    return fail(ErrorCode::kIncompatible, "protocol version {}.{} from \"{}\", expected {}.{}",
                in.getProtocolMajor(), in.getProtocolMinor(), short_sender(in), kProtocolMajor,
                kProtocolMinor);
  }
  return in;
}

Result<Envelope> decode_words(kj::ArrayPtr<const capnp::word> words) {
  capnp::FlatArrayMessageReader reader(words, reader_options(words));
  K3_ASSIGN(const proto::Envelope::Reader in, root_of(reader, words));
  Envelope envelope{read_header(in), {}};
  const auto body = in.getBody();
  if (!codec::read_control(body, envelope.body) && !codec::read_trunk(body, envelope.body) &&
      !codec::read_experts(body, envelope.body) && !codec::read_compute(body, envelope.body) &&
      !codec::read_tokenizer(body, envelope.body)) {
    return fail(ErrorCode::kFailed, "unknown message {} from \"{}\" (protocol {}.{}, ours {}.{})",
                static_cast<unsigned>(body.which()), short_sender(in), in.getProtocolMajor(),
                in.getProtocolMinor(), kProtocolMajor, kProtocolMinor);
  }
  return envelope;
}

}  // namespace

Result<std::vector<std::byte>> encode(const Header& header, const Message& body) {
  try {
    capnp::MallocMessageBuilder builder;
    auto out = builder.initRoot<proto::Envelope>();
    out.setProtocolMajor(kProtocolMajor);
    out.setProtocolMinor(kProtocolMinor);
    out.setSender(codec::as_text(header.sender));
    out.setIncarnation(header.incarnation);
    out.setSequence(header.sequence);
    out.setInReplyTo(header.in_reply_to);
    out.setTraceId(header.trace_id);
    out.setMonotonicNs(header.monotonic_ns);
    std::visit([&](const auto& message) { codec::write(message, out.getBody()); }, body);

    const std::size_t bytes = capnp::computeSerializedSizeInWords(builder) * sizeof(capnp::word);
    if (bytes > kMaxFrameBytes) {
      return fail(ErrorCode::kFailed, "message of {} bytes, a frame holds {}", bytes,
                  kMaxFrameBytes);
    }
    std::vector<std::byte> frame(bytes);
    kj::ArrayOutputStream stream({reinterpret_cast<kj::byte*>(frame.data()), frame.size()});
    capnp::writeMessage(stream, builder);
    return frame;
  } catch (const kj::Exception& error) {
    return fail(ErrorCode::kFailed, "message does not fit in a frame of {} bytes: {}",
                kMaxFrameBytes, describe(error));
  }
}

Result<Envelope> decode(std::span<const std::byte> frame) {
  if (!is_possible_size(frame.size())) {
    return fail(ErrorCode::kFailed,
                "malformed frame: {} bytes, expected a multiple of {} from {} to {}", frame.size(),
                sizeof(capnp::word), sizeof(capnp::word), kMaxFrameBytes);
  }
  const AlignedWords words(frame);
  try {
    return decode_words(words.get());
  } catch (const kj::Exception& error) {
    return fail(ErrorCode::kFailed, "malformed frame of {} bytes: {}", frame.size(),
                describe(error));
  }
}

std::optional<std::uint64_t> sequence_of(std::span<const std::byte> frame) {
  if (!is_possible_size(frame.size())) return std::nullopt;
  const AlignedWords words(frame);
  try {
    capnp::FlatArrayMessageReader reader(words.get(), reader_options(words.get()));
    const auto in = root_of(reader, words.get());
    if (!in) return std::nullopt;
    return in->getSequence();
  } catch (const kj::Exception&) {
    return std::nullopt;
  }
}

}  // namespace k3::ipc
