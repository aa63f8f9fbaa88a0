// What stamps connections and messages: random ids, the process's incarnation, the clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace k3::ipc {

// Names one connection on both of its sockets: the first packet of the lifeline and the ZeroMQ
// routing id. The first byte is not zero, which ZeroMQ reserves for ids of its own making.
using ConnectionId = std::array<std::byte, 16>;

// Random. Any thread.
ConnectionId new_connection_id();

// Random, nonzero, the same for the life of this process. Any thread.
std::uint64_t process_incarnation();

// CLOCK_MONOTONIC in nanoseconds. Any thread.
std::uint64_t monotonic_ns();

}  // namespace k3::ipc
