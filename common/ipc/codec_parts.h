// Inside the codec only: one function a message type and direction, grouped by service.
#pragma once

#include <kj/debug.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/ipc/messages.h"
#include "envelope.capnp.h"

namespace k3::ipc::codec {

using BodyReader = proto::Envelope::Body::Reader;
using BodyBuilder = proto::Envelope::Body::Builder;

// Each writes its message as the member of the union. A list or text that Cap'n Proto cannot hold
// (2^29 elements) throws kj::Exception.
void write(const Hello& message, BodyBuilder body);
void write(const Welcome& message, BodyBuilder body);
void write(const ErrorReply& message, BodyBuilder body);
void write(const StatsRequest& message, BodyBuilder body);
void write(const Stats& message, BodyBuilder body);
void write(const Stop& message, BodyBuilder body);
void write(const SetLogLevel& message, BodyBuilder body);
void write(const SetSpans& message, BodyBuilder body);
void write(const TakeSpans& message, BodyBuilder body);
void write(const Spans& message, BodyBuilder body);

void write(const DescribeTrunk& message, BodyBuilder body);
void write(const TrunkDescription& message, BodyBuilder body);
void write(const Subscribe& message, BodyBuilder body);
void write(const UnitReady& message, BodyBuilder body);
void write(const UnitRelease& message, BodyBuilder body);
void write(const UnitFailed& message, BodyBuilder body);
void write(const RowsRequest& message, BodyBuilder body);
void write(const Rows& message, BodyBuilder body);

void write(const DescribeExperts& message, BodyBuilder body);
void write(const ExpertsDescription& message, BodyBuilder body);
void write(const Fetch& message, BodyBuilder body);
void write(const Arrived& message, BodyBuilder body);
void write(const ExpertFailed& message, BodyBuilder body);
void write(const BatchRelease& message, BodyBuilder body);
void write(const Hint& message, BodyBuilder body);

void write(const DescribeCompute& message, BodyBuilder body);
void write(const ComputeDescription& message, BodyBuilder body);
void write(const Generate& message, BodyBuilder body);
void write(const Cancel& message, BodyBuilder body);
void write(const Progress& message, BodyBuilder body);
void write(const Token& message, BodyBuilder body);
void write(const Logits& message, BodyBuilder body);
void write(const Finished& message, BodyBuilder body);

void write(const DescribeTokenizer& message, BodyBuilder body);
void write(const TokenizerDescription& message, BodyBuilder body);
void write(const Encode& message, BodyBuilder body);
void write(const EncodeChat& message, BodyBuilder body);
void write(const Encoded& message, BodyBuilder body);
void write(const Decode& message, BodyBuilder body);
void write(const Decoded& message, BodyBuilder body);

// Each reads the messages of one service into `out`; false when the union holds another one.
// Throws kj::Exception on a malformed or out-of-range value.
bool read_control(BodyReader body, Message& out);
bool read_trunk(BodyReader body, Message& out);
bool read_experts(BodyReader body, Message& out);
bool read_compute(BodyReader body, Message& out);
bool read_tokenizer(BodyReader body, Message& out);

// Parts shared by several services (codec_control.cpp).
void write_error(const Error& error, proto::control::ErrorReply::Builder out);
Error read_error(proto::control::ErrorReply::Reader in);
void write_ref(const Ref& ref, proto::control::Ref::Builder out);
Ref read_ref(proto::control::Ref::Reader in);

// Most elements a list of structs may have: real ones are far shorter, and elements of zero size
// would let a small frame ask for gigabytes.
inline constexpr unsigned kMaxStructs = 1u << 20;

template <class List>
List checked(List list) {
  KJ_REQUIRE(list.size() <= kMaxStructs, "list is too long", list.size(), kMaxStructs);
  return list;
}

template <class Enum, class Wire>
Enum read_enum(Wire value, Enum last) {
  const auto number = static_cast<std::uint16_t>(value);
  KJ_REQUIRE(number <= static_cast<std::uint16_t>(last), "enumerant is unknown", number,
             static_cast<std::uint16_t>(last));
  return static_cast<Enum>(number);
}

// Embedded NULs and bytes that are not UTF-8 pass unchanged.
inline std::string read_text(capnp::Text::Reader text) { return {text.begin(), text.size()}; }
inline capnp::Text::Reader as_text(const std::string& text) { return {text.data(), text.size()}; }

template <class T, class List>
std::vector<T> read_numbers(List list) {
  std::vector<T> out;
  out.reserve(list.size());
  for (const T value : list) out.push_back(value);
  return out;
}

template <class T>
kj::ArrayPtr<const T> as_list(const std::vector<T>& values) {
  return {values.data(), values.size()};
}

}  // namespace k3::ipc::codec
