// Wire form of the messages every service understands (proto/control.capnp).
#include "common/ipc/codec_parts.h"

namespace k3::ipc::codec {
namespace {

using Body = proto::Envelope::Body;

// A code of a newer minor version reads as kFailed; its message still says what happened.
ErrorCode read_error_code(std::int32_t code) {
  switch (static_cast<ErrorCode>(code)) {
    case ErrorCode::kFailed:
    case ErrorCode::kUsage:
    case ErrorCode::kOutput:
    case ErrorCode::kWeights:
    case ErrorCode::kStopped:
    case ErrorCode::kIncompatible:
    case ErrorCode::kBug:
    case ErrorCode::kUnavailable:
      return static_cast<ErrorCode>(code);
  }
  return ErrorCode::kFailed;
}

Stats read_stats(proto::control::Stats::Reader in) {
  Stats out;
  for (const auto counter : checked(in.getCounters())) {
    out.counters.push_back({read_text(counter.getName()), counter.getValue()});
  }
  return out;
}

Spans read_spans(proto::control::Spans::Reader in) {
  Spans out;
  for (const auto name : checked(in.getNames())) out.names.push_back(read_text(name));
  for (const auto span : checked(in.getSpans())) {
    KJ_REQUIRE(span.getName() < out.names.size(), "span name is unknown", span.getName());
    out.spans.push_back({span.getName(), span.getThread(), span.getArgument(), span.getBeginNs(),
                         span.getEndNs(), span.getTraceId()});
  }
  out.dropped = in.getDropped();
  return out;
}

}  // namespace

void write_error(const Error& error, proto::control::ErrorReply::Builder out) {
  out.setCode(static_cast<std::int32_t>(error.code));
  out.setMessage(as_text(error.message));
}

Error read_error(proto::control::ErrorReply::Reader in) {
  return {read_error_code(in.getCode()), read_text(in.getMessage())};
}

void write_ref(const Ref& ref, proto::control::Ref::Builder out) {
  out.setRegion(ref.region);
  out.setGeneration(ref.generation);
  out.setOffset(ref.offset);
  out.setLength(ref.length);
}

Ref read_ref(proto::control::Ref::Reader in) {
  return {in.getRegion(), in.getGeneration(), in.getOffset(), in.getLength()};
}

void write(const Hello& message, BodyBuilder body) {
  auto out = body.initHello();
  out.setRole(as_text(message.role));
  out.setFingerprint(as_text(message.fingerprint));
}

void write(const Welcome& message, BodyBuilder body) {
  auto out = body.initWelcome();
  out.setService(as_text(message.service));
  out.setPid(message.pid);
  out.setFingerprint(as_text(message.fingerprint));
}

void write(const ErrorReply& message, BodyBuilder body) {
  write_error(message.error, body.initError());
}

void write(const StatsRequest&, BodyBuilder body) { body.setStatsRequest(); }

void write(const Stats& message, BodyBuilder body) {
  auto out = body.initStats().initCounters(static_cast<unsigned>(message.counters.size()));
  unsigned i = 0;
  for (const Counter& counter : message.counters) {
    out[i].setName(as_text(counter.name));
    out[i++].setValue(counter.value);
  }
}

void write(const Stop&, BodyBuilder body) { body.setStop(); }

void write(const SetLogLevel& message, BodyBuilder body) {
  body.setSetLogLevel(as_text(message.level));
}

void write(const SetSpans& message, BodyBuilder body) { body.setSetSpans(message.on); }

void write(const TakeSpans&, BodyBuilder body) { body.setTakeSpans(); }

void write(const Spans& message, BodyBuilder body) {
  auto out = body.initSpans();
  auto names = out.initNames(static_cast<unsigned>(message.names.size()));
  for (unsigned i = 0; i < names.size(); ++i) names.set(i, as_text(message.names[i]));
  auto spans = out.initSpans(static_cast<unsigned>(message.spans.size()));
  for (unsigned i = 0; i < spans.size(); ++i) {
    const RecordedSpan& span = message.spans[i];
    spans[i].setName(span.name);
    spans[i].setThread(span.thread);
    spans[i].setArgument(span.argument);
    spans[i].setBeginNs(span.begin_ns);
    spans[i].setEndNs(span.end_ns);
    spans[i].setTraceId(span.trace_id);
  }
  out.setDropped(message.dropped);
}

bool read_control(BodyReader body, Message& out) {
  switch (body.which()) {
    case Body::HELLO: {
      const auto in = body.getHello();
      out = Hello{read_text(in.getRole()), read_text(in.getFingerprint())};
      return true;
    }
    case Body::WELCOME: {
      const auto in = body.getWelcome();
      out = Welcome{read_text(in.getService()), in.getPid(), read_text(in.getFingerprint())};
      return true;
    }
    case Body::ERROR:
      out = ErrorReply{read_error(body.getError())};
      return true;
    case Body::STATS_REQUEST:
      out = StatsRequest{};
      return true;
    case Body::STATS:
      out = read_stats(body.getStats());
      return true;
    case Body::STOP:
      out = Stop{};
      return true;
    case Body::SET_LOG_LEVEL:
      out = SetLogLevel{read_text(body.getSetLogLevel())};
      return true;
    case Body::SET_SPANS:
      out = SetSpans{body.getSetSpans()};
      return true;
    case Body::TAKE_SPANS:
      out = TakeSpans{};
      return true;
    case Body::SPANS:
      out = read_spans(body.getSpans());
      return true;
    default:
      return false;
  }
}

}  // namespace k3::ipc::codec
