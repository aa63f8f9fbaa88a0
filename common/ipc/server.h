// The serving side of a connection: a ROUTER socket, a lifeline per client, and the model
// handshake.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "common/arena/arena.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/ipc/event_loop.h"
#include "common/ipc/messages.h"

namespace k3::ipc {

// A descriptor handed to every client when it connects, before its Welcome.
struct SharedRegion {
  std::uint32_t region = 0;
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;
  int fd = -1;  // borrowed; outlives the server
  RegionKind kind = RegionKind::kMemory;
};

// Accepts clients of one service. All calls and callbacks on the event loop's thread.
//
// A client is known by its lifeline; end of file there is its death: on_disconnect is called once,
// and no message of it is delivered afterwards. Hello, StatsRequest, Stop, SetLogLevel,
// SetSpans, TakeSpans and malformed frames are answered here; everything else goes to on_message.
// SetLogLevel and SetSpans are answered with an empty Stats, or an error; spans are recorded until
// they are switched off or the client that switched them on last has died. Stop stops the loop and
// has no answer. A client that skips a sequence number is disconnected, so no message is ever lost
// silently. A callback must not destroy the server.
class Server {
 public:
  using ClientId = std::uint64_t;

  struct Options {
    std::string service;      // "trunk": names the endpoint files; sender is "k3-trunk"
    std::string fingerprint;  // of the model served; empty when there is none
    std::vector<SharedRegion> regions;
  };

  struct Callbacks {
    std::function<void(ClientId, const Envelope&)> on_message;
    std::function<void(ClientId)> on_disconnect;
    std::function<Stats()> stats;
  };

  // Binds the endpoint files in `run_dir`. Another live process on the endpoint is kFailed naming
  // its pid; files of a dead one are replaced. `loop` outlives the server.
  static Result<std::unique_ptr<Server>> bind(EventLoop& loop, const std::filesystem::path& run_dir,
                                              Options options, Callbacks callbacks);
  ~Server();

  // Queues one message; a client that has gone, or whose queue is full (it is then disconnected:
  // its on_disconnect follows from the loop, never from inside this call), is logged and skipped. A
  // message that no frame can hold becomes an ErrorReply. `in_reply_to` is the sequence of the
  // request answered, or 0.
  void send(ClientId client, const Message& message, std::uint64_t in_reply_to = 0,
            std::uint64_t trace_id = 0);

  // Ids of the clients that have completed Hello.
  std::vector<ClientId> clients() const;

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace k3::ipc
