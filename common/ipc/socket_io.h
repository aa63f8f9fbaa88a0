// Messages over a ZeroMQ socket without blocking: all that client and server share of it.
#pragma once

#include <optional>
#include <vector>
#include <zmq.hpp>

namespace k3::ipc {

// Limits and options every socket has: frame size, queue lengths, linger.
void configure(zmq::socket_t& socket);

// The parts of the next message, at most `expected` + 1 of them (any further ones are discarded);
// nothing when none is waiting.
std::optional<std::vector<zmq::message_t>> receive_parts(zmq::socket_t& socket,
                                                         std::size_t expected);

enum class Sent { kQueued, kQueueFull, kNoRoute };

// Queues `parts` as one message, or nothing of it.
Sent send_parts(zmq::socket_t& socket, std::vector<zmq::message_t> parts);

}  // namespace k3::ipc
