// Bytes to messages and back: the only code that touches Cap'n Proto.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "common/ipc/messages.h"

namespace k3::ipc {

inline constexpr std::uint16_t kProtocolMajor = 1;
inline constexpr std::uint16_t kProtocolMinor = 2;

// The largest frame accepted or sent.
inline constexpr std::size_t kMaxFrameBytes = std::size_t{256} << 20;

// One frame holding `body`; kFailed with both sizes when it would exceed kMaxFrameBytes. Any
// thread.
Result<std::vector<std::byte>> encode(const Header& header, const Message& body);

// Parses one frame from an untrusted peer; `frame` may be unaligned. A malformed frame, an enum or
// size out of range, or an unknown message is kFailed; another protocolMajor is kIncompatible with
// both versions named. Any thread.
Result<Envelope> decode(std::span<const std::byte> frame);

// The sequence number of a frame, read even when decode() refuses what its body holds: such a frame
// counts like any other. Nothing when the envelope itself cannot be read, or is of another
// protocolMajor. Any thread.
std::optional<std::uint64_t> sequence_of(std::span<const std::byte> frame);

}  // namespace k3::ipc
