#include "tools/k3/conform_peer.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/ipc/codec.h"
#include "common/ipc/socket_io.h"

namespace k3::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kRole = "conform";

std::chrono::milliseconds left_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return std::max(left, std::chrono::milliseconds{0});
}

bool readable_within(int fd, std::chrono::milliseconds limit) {
  pollfd item{fd, POLLIN, 0};
  return ::poll(&item, 1, static_cast<int>(limit.count())) > 0;
}

}  // namespace

Result<ConformPeer> ConformPeer::open(const ipc::Endpoint& endpoint,
                                      std::chrono::milliseconds limit, Findings& findings,
                                      Lifeline with) {
  ConformPeer peer(findings, limit);
  if (with == Lifeline::kOpen) {
    K3_ASSIGN(peer.lifeline_, ipc::connect_lifeline(endpoint.lifeline_path, peer.id_));
  }
  try {
    peer.dealer_ = zmq::socket_t(peer.context_, zmq::socket_type::dealer);
    ipc::configure(peer.dealer_);
    peer.dealer_.set(zmq::sockopt::linger, 0);  // what a dead service did not take is of no use
    peer.dealer_.set(zmq::sockopt::routing_id, zmq::buffer(peer.id_.data(), peer.id_.size()));
    peer.dealer_.connect(endpoint.zmq_address());
  } catch (const zmq::error_t& error) {
    return fail(ErrorCode::kFailed, "{}: cannot connect: {}", endpoint.zmq_address(), error.what());
  }
  return peer;
}

Result<std::vector<std::byte>> ConformPeer::next_frame(const ipc::Message& message) const {
  const ipc::Header header{kRole, ipc::process_incarnation(), sent_ + 1, 0, 0, ipc::monotonic_ns()};
  return ipc::encode(header, message);
}

Status ConformPeer::send_frame(std::span<const std::byte> frame) {
  return send_frames({std::vector<std::byte>(frame.begin(), frame.end())});
}

Status ConformPeer::send_frames(const std::vector<std::vector<std::byte>>& frames) {
  std::vector<zmq::message_t> parts;
  parts.reserve(frames.size());
  for (const std::vector<std::byte>& frame : frames) {
    parts.emplace_back(frame.data(), frame.size());
  }
  if (ipc::send_parts(dealer_, std::move(parts)) == ipc::Sent::kQueued) return {};
  return fail(ErrorCode::kUnavailable, "the service does not read its messages");
}

Result<std::uint64_t> ConformPeer::send(const ipc::Message& message) {
  K3_ASSIGN(const std::vector<std::byte> frame, next_frame(message));
  K3_TRY(send_frame(frame));
  return ++sent_;
}

Result<std::optional<ipc::Envelope>> ConformPeer::receive() {
  const Clock::time_point deadline = Clock::now() + limit_;
  while (true) {
    if (const auto parts = ipc::receive_parts(dealer_, 1)) return take(*parts);
    if (ended_) return fail(ErrorCode::kUnavailable, "the service closed the lifeline");
    const std::chrono::milliseconds left = left_until(deadline);
    if (left.count() == 0) return std::nullopt;
    const bool watched = lifeline_.valid() && regions_taken_;
    std::vector<zmq::pollitem_t> items{{dealer_.handle(), 0, ZMQ_POLLIN, 0}};
    if (watched) items.push_back({nullptr, lifeline_.get(), ZMQ_POLLIN, 0});
    zmq::poll(items, left);
    // What was sent before the end comes first: the loop looks for it once more.
    if (watched && items.back().revents != 0) look_for_end_of_file();
  }
}

Result<ipc::Envelope> ConformPeer::take(const std::vector<zmq::message_t>& parts) {
  if (parts.size() != 1) {
    return fail(ErrorCode::kFailed, "a message of {} frames or more, expected one", parts.size());
  }
  K3_ASSIGN(ipc::Envelope envelope, ipc::decode({parts[0].data<std::byte>(), parts[0].size()}));
  ++received_;
  if (lifeline_.valid()) {  // a service does not count what it says to strangers
    findings_->expect(Clause::kSequence, envelope.header.sequence == received_,
                      "message {} of the service has sequence {}", received_,
                      envelope.header.sequence);
  }
  return envelope;
}

Result<std::optional<std::vector<ipc::ReceivedRegion>>> ConformPeer::take_regions(
    std::chrono::milliseconds limit) {
  if (!readable_within(lifeline_.get(), limit)) return std::nullopt;
  auto regions = ipc::receive_regions(lifeline_.get());
  regions_taken_ = true;
  return regions;
}

void ConformPeer::look_for_end_of_file() {
  std::byte byte{};
  const ssize_t got = ::recv(lifeline_.get(), &byte, 1, MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN)) ended_ = true;
  if (got > 0) {
    findings_->expect(Clause::kRegions, false, "a second packet on the lifeline, expected none");
  }
}

bool ConformPeer::hung_up() { return ended_ || ends_within(lifeline_, limit_); }

void ConformPeer::talk_on_lifeline() {
  ::send(lifeline_.get(), id_.data(), id_.size(), MSG_NOSIGNAL);
}

Result<UniqueFd> lifeline_saying(const std::filesystem::path& path,
                                 std::span<const std::byte> packet) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::send(fd.get(), packet.data(), packet.size(), MSG_NOSIGNAL) < 0) {
    return fail(ErrorCode::kUnavailable, "{}: {}", path.string(), std::strerror(errno));
  }
  return fd;
}

bool ends_within(const UniqueFd& lifeline, std::chrono::milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  std::array<std::byte, 64> discarded{};
  while (readable_within(lifeline.get(), left_until(deadline))) {
    const ssize_t got = ::recv(lifeline.get(), discarded.data(), discarded.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return true;
  }
  return false;
}

}  // namespace k3::cli
