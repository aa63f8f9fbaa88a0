// Wire form of the tokenizer service's messages (proto/tokenizer.capnp).
#include "common/ipc/codec_parts.h"

namespace k3::ipc::codec {
namespace {

using Body = proto::Envelope::Body;

capnp::Data::Reader as_data(const std::string& bytes) {
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}

std::string read_data(capnp::Data::Reader data) {
  return {reinterpret_cast<const char*>(data.begin()), data.size()};
}

Encode read_encode(proto::tokenizer::Encode::Reader in) {
  Encode out;
  for (const auto segment : checked(in.getSegments())) {
    out.segments.push_back({read_text(segment.getText()), segment.getAllowSpecial()});
  }
  return out;
}

}  // namespace

void write(const DescribeTokenizer&, BodyBuilder body) { body.setDescribeTokenizer(); }

void write(const TokenizerDescription& message, BodyBuilder body) {
  auto out = body.initTokenizerDescription();
  out.setHasVocabulary(message.has_vocabulary);
  out.setVocab(message.vocab);
  out.setStopIds(as_list(message.stop_ids));
}

void write(const Encode& message, BodyBuilder body) {
  auto out = body.initEncode().initSegments(static_cast<unsigned>(message.segments.size()));
  for (unsigned i = 0; i < out.size(); ++i) {
    out[i].setText(as_text(message.segments[i].text));
    out[i].setAllowSpecial(message.segments[i].allow_special);
  }
}

void write(const EncodeChat& message, BodyBuilder body) {
  auto out = body.initEncodeChat();
  out.setUserText(as_text(message.user_text));
  out.setThinking(message.thinking);
}

void write(const Encoded& message, BodyBuilder body) {
  body.initEncoded().setIds(as_list(message.ids));
}

void write(const Decode& message, BodyBuilder body) {
  auto out = body.initDecode();
  out.setIds(as_list(message.ids));
  out.setPending(as_data(message.pending));
  out.setLast(message.last);
}

void write(const Decoded& message, BodyBuilder body) {
  auto out = body.initDecoded();
  out.setText(as_text(message.text));
  out.setPending(as_data(message.pending));
}

bool read_tokenizer(BodyReader body, Message& out) {
  switch (body.which()) {
    case Body::DESCRIBE_TOKENIZER:
      out = DescribeTokenizer{};
      return true;
    case Body::TOKENIZER_DESCRIPTION: {
      const auto in = body.getTokenizerDescription();
      out = TokenizerDescription{in.getHasVocabulary(), in.getVocab(),
                                 read_numbers<std::int32_t>(in.getStopIds())};
      return true;
    }
    case Body::ENCODE:
      out = read_encode(body.getEncode());
      return true;
    case Body::ENCODE_CHAT: {
      const auto in = body.getEncodeChat();
      out = EncodeChat{read_text(in.getUserText()), in.getThinking()};
      return true;
    }
    case Body::ENCODED:
      out = Encoded{read_numbers<std::int32_t>(body.getEncoded().getIds())};
      return true;
    case Body::DECODE: {
      const auto in = body.getDecode();
      out =
          Decode{read_numbers<std::int32_t>(in.getIds()), read_data(in.getPending()), in.getLast()};
      return true;
    }
    case Body::DECODED: {
      const auto in = body.getDecoded();
      out = Decoded{read_text(in.getText()), read_data(in.getPending())};
      return true;
    }
    default:
      return false;
  }
}

}  // namespace k3::ipc::codec
