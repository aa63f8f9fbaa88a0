#include "common/ipc/socket_io.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "common/ipc/codec.h"

namespace k3::ipc {
namespace {

// Messages in flight each way. A peer that lets this many pile up is not reading.
constexpr int kQueueMessages = 4096;
// How long the last messages of a closing socket may still be on their way.
constexpr int kLingerMs = 200;

}  // namespace

void configure(zmq::socket_t& socket) {
  socket.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(kMaxFrameBytes));
  socket.set(zmq::sockopt::sndhwm, kQueueMessages);
  socket.set(zmq::sockopt::rcvhwm, kQueueMessages);
  socket.set(zmq::sockopt::linger, kLingerMs);
  socket.set(zmq::sockopt::backlog, SOMAXCONN);
}

std::optional<std::vector<zmq::message_t>> receive_parts(zmq::socket_t& socket,
                                                         std::size_t expected) {
  std::vector<zmq::message_t> parts;
  try {
    bool more = true;
    while (more) {
      zmq::message_t part;
      if (!socket.recv(part, zmq::recv_flags::dontwait)) return std::nullopt;
      more = part.more();
      if (parts.size() <= expected) parts.push_back(std::move(part));
    }
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) throw;
    return std::nullopt;
  }
  return parts;
}

Sent send_parts(zmq::socket_t& socket, std::vector<zmq::message_t> parts) {
  // Only the first part can fail: it reserves the whole message's place in the queue.
  try {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool last = i + 1 == parts.size();
      const auto flags =
          last ? zmq::send_flags::dontwait : zmq::send_flags::dontwait | zmq::send_flags::sndmore;
      if (!socket.send(parts[i], flags)) return Sent::kQueueFull;
    }
  } catch (const zmq::error_t& error) {
    if (error.num() == EHOSTUNREACH) return Sent::kNoRoute;
    throw;
  }
  return Sent::kQueued;
}

}  // namespace k3::ipc
