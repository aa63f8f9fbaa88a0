// The consuming side: connects, notices a peer's death at once, connects again, maps its regions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "common/base/result.h"
#include "common/ipc/event_loop.h"
#include "common/ipc/messages.h"

namespace k3::ipc {

// One connection to one service, kept alive over restarts of the peer. All calls and callbacks on
// the event loop's thread.
//
// While down it tries the lifeline every 20 ms; every connection is a fresh DEALER socket and a
// fresh Hello, so a restarted peer always registers it again. The fingerprint of the first Welcome
// (or Options::fingerprint) is required of every later one; a mismatch, another protocol major
// version, or a region that cannot be mapped is permanent: see failure(). A damaged or missing
// message (sequence numbers must be gapless) counts as the peer's death, and so does a peer that
// lets our messages pile up. A callback must not destroy the client.
//
// The peer's regions are unmapped when it is lost, before on_down. That happens while the loop runs
// and never inside a call of send(), so resolved bytes are safe to read for as long as the loop is
// not run. Once the loop has turned, memory no longer holds the arenas of two of the peer's lives;
// until then its successor may be refused the memory, and is started again by the supervisor.
class Client {
 public:
  struct Options {
    std::string service;      // "trunk", "experts", ...
    std::string role;         // who we are: "compute", "cli"
    std::string fingerprint;  // empty accepts any at the first connection
    bool map_regions = true;  // false when nothing is ever resolved
  };

  struct Callbacks {
    std::function<void(const Welcome&)> on_up;  // connected (again); nothing sent earlier counts
    std::function<void(const Envelope&)> on_message;
    std::function<void()> on_down;  // the peer died; its regions are no longer mapped
  };

  static Result<std::unique_ptr<Client>> create(EventLoop& loop,
                                                const std::filesystem::path& run_dir,
                                                Options options, Callbacks callbacks);
  ~Client();

  bool up() const;
  // Times the peer was lost after having been up.
  std::uint32_t losses() const;
  // Set when the peer can never serve us (usually kIncompatible); the client has stopped trying.
  const std::optional<Error>& failure() const;
  // The latest Welcome; empty before the first.
  const std::optional<Welcome>& welcome() const;
  // The socket a connection starts at, for messages to the user.
  const std::filesystem::path& endpoint() const;

  // Sends now; returns the sequence number. kUnavailable when down; also when the queue of a peer
  // that does not read is full: up() is then false, and on_down and a new connection follow from
  // the loop, so the caller may leave the error to them. kFailed with the sizes when the message
  // exceeds kMaxFrameBytes.
  Result<std::uint64_t> send(const Message& message, std::uint64_t trace_id = 0);

  // The bytes a Ref points to, read-only, valid until the loop is run. A generation or region that
  // is not the connected peer's is kUnavailable (an honest peer's messages since on_up never refer
  // to one); a span outside the region is kFailed with the numbers.
  Result<std::span<const std::byte>> resolve(const Ref& ref) const;

 private:
  struct State;
  explicit Client(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Runs `loop` until `client` is up, it failed for good, `stop_fd` is readable (-1: none), or
// `limit` has passed. kUnavailable when the limit passes (naming the endpoint), kStopped on the
// signal.
Status wait_until_up(EventLoop& loop, const Client& client, int stop_fd,
                     std::chrono::milliseconds limit);

}  // namespace k3::ipc
