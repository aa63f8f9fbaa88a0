#include "common/ipc/server.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <variant>

#include "common/base/log.h"
#include "common/ipc/codec.h"
#include "common/ipc/lifeline.h"
#include "common/ipc/peer_table.h"
#include "common/ipc/run_dir.h"
#include "common/ipc/socket_io.h"
#include "common/ipc/span_messages.h"
#include "common/observe/spans.h"

namespace k3::ipc {
namespace {

// Bounded, so that one flooding client cannot keep the loop from noticing deaths.
constexpr int kMessagesPerTurn = 64;
// Each costs one descriptor here and one in ZeroMQ. Beyond it whoever has waited longest without a
// Hello makes room; when all have said it, newcomers are refused at the lifeline.
constexpr std::size_t kMaxClients = 256;
// Role and fingerprint of a Hello end up in logs and replies.
constexpr std::size_t kMaxNameBytes = 128;

}  // namespace

struct Server::State {
  EventLoop& loop;
  Endpoint endpoint;
  Options options;
  Callbacks callbacks;
  std::string sender;
  UniqueFd lock;
  UniqueFd listener;
  zmq::socket_t router;
  EventLoop::SourceId listener_watch = 0;
  EventLoop::SourceId router_watch = 0;
  PeerTable peers;
  std::optional<ClientId> spans_for;  // who switched them on; off with its death

  State(EventLoop& event_loop, Endpoint files, Options server_options, Callbacks server_callbacks)
      : loop(event_loop),
        endpoint(std::move(files)),
        options(std::move(server_options)),
        callbacks(std::move(server_callbacks)),
        sender("k3-" + options.service) {}
  ~State();

  Status open();
  void accept_lifelines();
  bool make_room();
  void read_lifeline(ClientId id);
  void drop(ClientId id, const std::string& reason);
  void hang_up(Peer& peer);

  void receive_messages();
  void receive_from(const std::string& routing_id, const std::vector<zmq::message_t>& parts);
  void handle(ClientId id, const Envelope& envelope);
  void greet(ClientId id, const Envelope& envelope);
  void set_level(ClientId id, const Envelope& envelope);
  void set_spans(ClientId id, const Envelope& envelope);

  void reply(ClientId id, const Message& message, std::uint64_t in_reply_to,
             std::uint64_t trace_id = 0);
  void reply_error(ClientId id, ErrorCode code, std::string message, std::uint64_t in_reply_to = 0);
  void refuse_unknown(const std::string& routing_id);
  Header header(std::uint64_t sequence, std::uint64_t in_reply_to, std::uint64_t trace_id) const;
};

Status Server::State::open() {
  K3_TRY(prepare_run_dir(endpoint.lock_path.parent_path()));
  K3_ASSIGN(lock, lock_endpoint(endpoint));
  try {
    router = zmq::socket_t(loop.context(), zmq::socket_type::router);
    configure(router);
    router.set(zmq::sockopt::router_mandatory, true);
    ::unlink(endpoint.zmq_path.c_str());
    router.bind(endpoint.zmq_address());
  } catch (const zmq::error_t& error) {
    return fail(ErrorCode::kFailed, "{}: cannot bind: {}", endpoint.zmq_address(), error.what());
  }
  if (::chmod(endpoint.zmq_path.c_str(), 0600) != 0) {
    return fail(ErrorCode::kFailed, "{}: chmod: {}", endpoint.zmq_path.string(),
                std::strerror(errno));
  }
  // Last: a client takes an open lifeline for a server that is ready.
  K3_ASSIGN(listener, listen_lifeline(endpoint.lifeline_path));
  listener_watch = loop.watch(listener.get(), [this] { accept_lifelines(); });
  router_watch = loop.watch(router, [this] { receive_messages(); });
  return {};
}

Server::State::~State() {
  loop.remove(listener_watch);
  loop.remove(router_watch);
  for (const auto& [id, peer] : peers.all()) loop.remove(peer.watch);
  router.close();  // before the lifelines: last messages get a head start on their end of file
  if (!holds_endpoint(lock, endpoint)) return;
  ::unlink(endpoint.lifeline_path.c_str());
  ::unlink(endpoint.zmq_path.c_str());
  ::unlink(endpoint.lock_path.c_str());
}

void Server::State::accept_lifelines() {
  while (true) {
    UniqueFd fd = accept_lifeline(listener.get());
    if (!fd.valid()) break;
    if (peers.size() >= kMaxClients && !make_room()) {
      spdlog::warn("client_refused service={} clients={} limit={}", options.service, peers.size(),
                   kMaxClients);
      continue;
    }
    const int descriptor = fd.get();
    const ClientId id = peers.add(std::move(fd));
    peers.at(id).watch = loop.watch(descriptor, [this, id] { read_lifeline(id); });
  }
  // A client sends its id right after connecting, so an id that matters now has arrived.
  for (const ClientId id : peers.unidentified()) read_lifeline(id);
}

// Connections cost a silent process nothing: they must not keep out one that has something to say.
bool Server::State::make_room() {
  const std::optional<ClientId> silent = peers.oldest_silent();
  if (!silent) return false;
  spdlog::warn("client_evicted service={} client={} limit={} reason=\"no Hello\"", options.service,
               *silent, kMaxClients);
  drop(*silent, "made room");
  return true;
}

void Server::State::read_lifeline(ClientId id) {
  const Peer* peer = peers.find(id);
  if (peer == nullptr) return;
  const Result<std::optional<ConnectionId>> got = receive_connection_id(peer->lifeline.get());
  if (!got) return drop(id, got.error().message);
  if (!*got) return;
  Status status = peers.identify(id, **got);
  if (status) status = send_regions(peer->lifeline.get(), options.regions);
  if (!status) drop(id, status.error().message);
}

void Server::State::drop(ClientId id, const std::string& reason) {
  const Peer peer = peers.remove(id);
  loop.remove(peer.watch);
  if (spans_for == id) {
    spans_for.reset();
    spans::set_on(false);
  }
  if (!peer.greeted) return;
  spdlog::info("client_gone service={} client={} role={} reason=\"{}\"", options.service, id,
               peer.role, reason);
  if (callbacks.on_disconnect) callbacks.on_disconnect(id);
}

// Shuts the lifeline: the client sees end of file now, we see it in the next turn of the loop and
// drop the client there, so that on_disconnect never runs inside a caller's send().
void Server::State::hang_up(Peer& peer) {
  peer.closing = true;
  ::shutdown(peer.lifeline.get(), SHUT_RDWR);
}

void Server::State::receive_messages() {
  accept_lifelines();
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    const std::optional<std::vector<zmq::message_t>> parts = receive_parts(router, 2);
    if (!parts) return;
    receive_from(parts->front().to_string(), *parts);
  }
}

void Server::State::receive_from(const std::string& routing_id,
                                 const std::vector<zmq::message_t>& parts) {
  std::optional<ClientId> known = peers.with_routing_id(routing_id);
  if (!known) {
    // Its lifeline may have come after this turn of the loop began, and its first message on its
    // heels.
    accept_lifelines();
    known = peers.with_routing_id(routing_id);
  }
  if (!known) return refuse_unknown(routing_id);
  const ClientId id = *known;
  Peer& peer = peers.at(id);
  if (peer.closing) return;

  Result<Envelope> envelope = fail(ErrorCode::kFailed, "malformed message: expected one frame");
  std::optional<std::uint64_t> sequence;
  if (parts.size() == 2) {
    const std::span<const std::byte> frame(parts[1].data<std::byte>(), parts[1].size());
    envelope = decode(frame);
    sequence = envelope ? envelope->header.sequence : sequence_of(frame);
  }
  if (sequence && *sequence != peer.received + 1) {
    spdlog::warn("message_lost service={} client={} role={} sequence={} expected={}",
                 options.service, id, peer.role, *sequence, peer.received + 1);
    return hang_up(peer);
  }
  // A message this version does not know counts too: the newer client goes on from its number.
  if (sequence) peer.received = *sequence;
  if (envelope) return handle(id, *envelope);
  if (!std::exchange(peer.warned, true)) {
    spdlog::warn("bad_frame service={} client={} role={} error=\"{}\"", options.service, id,
                 peer.role, envelope.error().message);
  }
  reply_error(id, envelope.error().code, envelope.error().message, sequence.value_or(0));
}

void Server::State::handle(ClientId id, const Envelope& envelope) {
  const Message& body = envelope.body;
  if (std::holds_alternative<Hello>(body)) return greet(id, envelope);
  if (!peers.at(id).greeted) {
    return reply_error(id, ErrorCode::kUsage, sender + ": the first message must be Hello",
                       envelope.header.sequence);
  }
  if (std::holds_alternative<StatsRequest>(body)) {
    return reply(id, callbacks.stats ? callbacks.stats() : Stats{}, envelope.header.sequence);
  }
  if (std::holds_alternative<Stop>(body)) {
    spdlog::info("stop_requested service={} client={} role={}", options.service, id,
                 peers.at(id).role);
    return loop.stop();
  }
  if (std::holds_alternative<SetLogLevel>(body)) return set_level(id, envelope);
  if (std::holds_alternative<SetSpans>(body)) return set_spans(id, envelope);
  if (std::holds_alternative<TakeSpans>(body)) {
    return reply(id, span_message(spans::take()), envelope.header.sequence);
  }
  callbacks.on_message(id, envelope);
}

void Server::State::greet(ClientId id, const Envelope& envelope) {
  const Hello& hello = std::get<Hello>(envelope.body);
  Peer& peer = peers.at(id);
  const std::uint64_t sequence = envelope.header.sequence;
  if (hello.role.size() > kMaxNameBytes || hello.fingerprint.size() > kMaxNameBytes) {
    return reply_error(
        id, ErrorCode::kUsage,
        fmt::format("{}: Hello with a role of {} and a fingerprint of {} bytes, at "
                    "most {} each",
                    sender, hello.role.size(), hello.fingerprint.size(), kMaxNameBytes),
        sequence);
  }
  if (!hello.fingerprint.empty() && !options.fingerprint.empty() &&
      hello.fingerprint != options.fingerprint) {
    // The client hangs up when it has read this; hanging up here could overtake the reply.
    return reply_error(id, ErrorCode::kIncompatible,
                       fmt::format("{} serves model {}, {} expects {}", sender, options.fingerprint,
                                   hello.role, hello.fingerprint),
                       sequence);
  }
  peer.role = hello.role;
  peer.greeted = true;
  spdlog::info("client_up service={} client={} role={} incarnation={:016x}", options.service, id,
               peer.role, envelope.header.incarnation);
  reply(id, Welcome{sender, static_cast<std::uint32_t>(::getpid()), options.fingerprint}, sequence);
}

void Server::State::set_level(ClientId id, const Envelope& envelope) {
  const std::string& level = std::get<SetLogLevel>(envelope.body).level;
  if (const Status status = set_log_level(level); !status) {
    return reply_error(id, status.error().code, status.error().message, envelope.header.sequence);
  }
  reply(id, Stats{}, envelope.header.sequence);
}

void Server::State::set_spans(ClientId id, const Envelope& envelope) {
  const bool on = std::get<SetSpans>(envelope.body).on;
  spans_for = on ? std::optional(id) : std::nullopt;
  spans::set_on(on);
  spdlog::info("spans service={} client={} on={}", options.service, id, on);
  reply(id, Stats{}, envelope.header.sequence);
}

void Server::State::reply(ClientId id, const Message& message, std::uint64_t in_reply_to,
                          std::uint64_t trace_id) {
  Peer* const found = peers.find(id);
  if (found == nullptr || found->closing) {
    spdlog::debug("send_skipped service={} client={} reason=gone", options.service, id);
    return;
  }
  Peer& peer = *found;
  const Result<std::vector<std::byte>> frame =
      encode(header(peer.sent + 1, in_reply_to, trace_id), message);
  if (!frame) return reply_error(id, frame.error().code, frame.error().message, in_reply_to);

  std::vector<zmq::message_t> parts;
  parts.emplace_back(peer.routing_id);
  parts.emplace_back(frame->data(), frame->size());
  switch (send_parts(router, std::move(parts))) {
    case Sent::kQueued:
      ++peer.sent;
      return;
    case Sent::kQueueFull:
      spdlog::warn("client_slow service={} client={} role={} action=disconnect", options.service,
                   id, peer.role);
      return hang_up(peer);
    case Sent::kNoRoute:  // its socket broke although it lives: it must connect again
      spdlog::warn("client_unreachable service={} client={} role={} action=disconnect",
                   options.service, id, peer.role);
      return hang_up(peer);
  }
}

void Server::State::reply_error(ClientId id, ErrorCode code, std::string message,
                                std::uint64_t in_reply_to) {
  reply(id, ErrorReply{{code, std::move(message)}}, in_reply_to);
}

// Nobody's lifeline: a stranger, or what a dead client had still sent. There may be no route back.
void Server::State::refuse_unknown(const std::string& routing_id) {
  spdlog::debug("unknown_client service={}", options.service);
  const ErrorReply error{{ErrorCode::kUnavailable, sender + ": this connection has no lifeline"}};
  const Result<std::vector<std::byte>> frame = encode(header(1, 0, 0), error);
  if (!frame) return;
  std::vector<zmq::message_t> parts;
  parts.emplace_back(routing_id);
  parts.emplace_back(frame->data(), frame->size());
  send_parts(router, std::move(parts));
}

Header Server::State::header(std::uint64_t sequence, std::uint64_t in_reply_to,
                             std::uint64_t trace_id) const {
  return {sender, process_incarnation(), sequence, in_reply_to, trace_id, monotonic_ns()};
}

Result<std::unique_ptr<Server>> Server::bind(EventLoop& loop, const std::filesystem::path& run_dir,
                                             Options options, Callbacks callbacks) {
  if (options.regions.size() > kMaxRegions) {
    return fail(ErrorCode::kUsage, "{}: {} shared regions, the limit is {}", options.service,
                options.regions.size(), kMaxRegions);
  }
  K3_ASSIGN(Endpoint endpoint, endpoint_in(run_dir, options.service));
  auto state =
      std::make_unique<State>(loop, std::move(endpoint), std::move(options), std::move(callbacks));
  K3_TRY(state->open());
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}
Server::~Server() = default;

void Server::send(ClientId client, const Message& message, std::uint64_t in_reply_to,
                  std::uint64_t trace_id) {
  state_->reply(client, message, in_reply_to, trace_id);
}

std::vector<Server::ClientId> Server::clients() const {
  std::vector<ClientId> ids;
  for (const auto& [id, peer] : state_->peers.all()) {
    if (peer.greeted && !peer.closing) ids.push_back(id);
  }
  return ids;
}

}  // namespace k3::ipc
