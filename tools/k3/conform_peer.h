// One connection to a service made by hand: it can say what an honest client never says.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>
#include <zmq.hpp>

#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/ipc/identity.h"
#include "common/ipc/lifeline.h"
#include "common/ipc/messages.h"
#include "common/ipc/run_dir.h"
#include "tools/k3/conform_clauses.h"

namespace k3::cli {

// Calls wait at most `limit`. One thread; its ZeroMQ threads live as long as it does, so that a
// process without a peer may fork.
class ConformPeer {
 public:
  enum class Lifeline { kOpen, kNone };

  // Connects, and sends the connection id on the lifeline; says no Hello. `findings` outlives it.
  // kUnavailable when no process listens.
  static Result<ConformPeer> open(const ipc::Endpoint& endpoint, std::chrono::milliseconds limit,
                                  Findings& findings, Lifeline with = Lifeline::kOpen);

  const ipc::ConnectionId& id() const { return id_; }
  std::chrono::milliseconds limit() const { return limit_; }

  // The frame of `message` under our next sequence number, which send() or skip_sequence() takes.
  Result<std::vector<std::byte>> next_frame(const ipc::Message& message) const;
  // Sends a frame as it is; takes no number. kUnavailable when the service does not read.
  Status send_frame(std::span<const std::byte> frame);
  // Sends one message of several frames.
  Status send_frames(const std::vector<std::vector<std::byte>>& frames);
  // Returns the sequence number.
  Result<std::uint64_t> send(const ipc::Message& message);
  void skip_sequence() { ++sent_; }

  // The next message, checked against E8; nothing when the limit passes first. kUnavailable at end
  // of file on the lifeline, kFailed when the frame cannot be decoded.
  Result<std::optional<ipc::Envelope>> receive();

  // The regions packet, once; nothing when it has not come within `limit`.
  Result<std::optional<std::vector<ipc::ReceivedRegion>>> take_regions(
      std::chrono::milliseconds limit);

  // Whether the service closes the lifeline within the limit.
  bool hung_up();
  // A packet on the lifeline, where a client has nothing to say after its id.
  void talk_on_lifeline();

 private:
  ConformPeer(Findings& findings, std::chrono::milliseconds limit)
      : findings_(&findings), limit_(limit) {}
  Result<ipc::Envelope> take(const std::vector<zmq::message_t>& parts);
  void look_for_end_of_file();

  Findings* findings_;
  std::chrono::milliseconds limit_;
  ipc::ConnectionId id_ = ipc::new_connection_id();
  zmq::context_t context_;  // before its socket
  zmq::socket_t dealer_;
  UniqueFd lifeline_;
  bool regions_taken_ = false;  // until then the lifeline is readable without being at its end
  bool ended_ = false;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

// Connects to the lifeline at `path` and sends `packet` as the first one.
Result<UniqueFd> lifeline_saying(const std::filesystem::path& path,
                                 std::span<const std::byte> packet);

// Whether `lifeline` comes to its end within `limit`; packets before it are discarded.
bool ends_within(const UniqueFd& lifeline, std::chrono::milliseconds limit);

}  // namespace k3::cli
