#include "common/ipc/client.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <limits>
#include <map>
#include <utility>
#include <variant>
#include <zmq.hpp>

#include "common/arena/arena.h"
#include "common/ipc/codec.h"
#include "common/ipc/lifeline.h"
#include "common/ipc/run_dir.h"
#include "common/ipc/socket_io.h"

namespace k3::ipc {
namespace {

constexpr std::chrono::milliseconds kRetryPeriod{20};
// Bounded, so that a chatty peer cannot keep the loop from its other sources.
constexpr int kMessagesPerTurn = 64;

struct Region {
  std::uint64_t generation = 0;
  MappedRegion mapping;
};
using Regions = std::map<std::uint32_t, Region>;

// One connection, from lifeline to end of file.
struct Connection {
  UniqueFd lifeline;
  zmq::socket_t dealer;
  EventLoop::SourceId lifeline_watch = 0;
  EventLoop::SourceId dealer_watch = 0;
  std::uint64_t sent = 0;                   // sequence of our latest message
  std::uint64_t received = 0;               // sequence of the peer's latest message
  std::optional<Regions> received_regions;  // of this peer, from its lifeline
  bool closing = false;                     // its lifeline is shut; the loop will see end of file
};

}  // namespace

struct Client::State {
  EventLoop& loop;
  Options options;
  Callbacks callbacks;
  Endpoint endpoint;
  std::string fingerprint;  // required of every Welcome; empty before the first
  std::optional<Connection> connection;
  EventLoop::SourceId retry_timer = 0;
  bool up = false;  // from on_up to on_down
  std::uint32_t losses = 0;
  std::optional<Error> failure;
  std::optional<Welcome> welcome;
  Regions regions;  // of the peer that is up

  State(EventLoop& event_loop, Options client_options, Callbacks client_callbacks, Endpoint files)
      : loop(event_loop),
        options(std::move(client_options)),
        callbacks(std::move(client_callbacks)),
        endpoint(std::move(files)),
        fingerprint(options.fingerprint) {}
  ~State();

  void start_trying();
  void try_connect();
  void close_connection();
  bool usable() const { return up && !connection->closing; }
  void lost(const std::string& reason);
  void give_up(Error error);
  void go_down();

  void read_lifeline();
  Status take_regions();
  void receive_messages(int limit);
  void receive(const std::vector<zmq::message_t>& parts);
  void handle_before_up(const Envelope& envelope);
  void come_up(const Welcome& message);
  Result<std::uint64_t> send(const Message& message, std::uint64_t trace_id);
};

Client::State::~State() {
  close_connection();
  loop.remove(retry_timer);
}

void Client::State::start_trying() {
  retry_timer = loop.every(kRetryPeriod, [this] { try_connect(); });
}

void Client::State::try_connect() {
  const ConnectionId id = new_connection_id();
  Result<UniqueFd> lifeline = connect_lifeline(endpoint.lifeline_path, id);
  if (!lifeline) return;  // not up yet; the timer tries again
  loop.remove(retry_timer);

  Connection& fresh = connection.emplace();
  fresh.lifeline = std::move(*lifeline);
  try {
    fresh.dealer = zmq::socket_t(loop.context(), zmq::socket_type::dealer);
    configure(fresh.dealer);
    fresh.dealer.set(zmq::sockopt::routing_id, zmq::buffer(id.data(), id.size()));
    fresh.dealer.connect(endpoint.zmq_address());
  } catch (const zmq::error_t& error) {
    return give_up({ErrorCode::kFailed,
                    fmt::format("{}: cannot connect: {}", endpoint.zmq_address(), error.what())});
  }
  fresh.lifeline_watch = loop.watch(fresh.lifeline.get(), [this] { read_lifeline(); });
  fresh.dealer_watch = loop.watch(fresh.dealer, [this] { receive_messages(kMessagesPerTurn); });
  if (const auto sent = send(Hello{options.role, fingerprint}, 0); !sent) give_up(sent.error());
}

void Client::State::close_connection() {
  if (!connection) return;
  loop.remove(connection->lifeline_watch);
  loop.remove(connection->dealer_watch);
  connection.reset();
}

void Client::State::lost(const std::string& reason) {
  close_connection();
  start_trying();
  if (!up) return;
  spdlog::warn("peer_lost service={} losses={} reason=\"{}\"", options.service, losses + 1, reason);
  go_down();
}

void Client::State::give_up(Error error) {
  spdlog::error("peer_refused service={} error=\"{}\"", options.service, error.message);
  close_connection();
  failure = std::move(error);
  if (up) go_down();
}

void Client::State::go_down() {
  up = false;
  ++losses;
  regions.clear();
  if (callbacks.on_down) callbacks.on_down();
}

void Client::State::read_lifeline() {
  if (!connection->received_regions) {
    const Status status = take_regions();
    if (status) return;
    if (status.error().code != ErrorCode::kUnavailable) return give_up(status.error());
  }
  // End of file: nothing else follows the regions. What the peer had still sent comes first.
  receive_messages(std::numeric_limits<int>::max());
  if (connection) lost("end of file");
}

// Maps the regions if their packet has arrived. Errors: kUnavailable at end of file; kFailed when
// they cannot be mapped.
Status Client::State::take_regions() {
  K3_ASSIGN(std::optional<std::vector<ReceivedRegion>> received,
            receive_regions(connection->lifeline.get()));
  if (!received) return {};
  if (!options.map_regions) received->clear();
  Regions mapped;
  for (ReceivedRegion& region : *received) {
    Result<MappedRegion> mapping =
        MappedRegion::map(std::move(region.fd), region.bytes, region.kind);
    if (!mapping) {
      return fail(ErrorCode::kFailed, "{}: region {}: {}", options.service, region.region,
                  mapping.error().message);
    }
    mapped.insert_or_assign(region.region, Region{region.generation, std::move(*mapping)});
  }
  connection->received_regions = std::move(mapped);
  return {};
}

void Client::State::receive_messages(int limit) {
  for (int i = 0; i < limit && connection; ++i) {
    const auto parts = receive_parts(connection->dealer, 1);
    if (!parts) return;
    receive(*parts);
  }
}

void Client::State::receive(const std::vector<zmq::message_t>& parts) {
  Result<Envelope> envelope = fail(ErrorCode::kFailed, "malformed message: expected one frame");
  if (parts.size() == 1) envelope = decode({parts[0].data<std::byte>(), parts[0].size()});
  if (!envelope && envelope.error().code == ErrorCode::kIncompatible) {
    return give_up({ErrorCode::kIncompatible, options.service + ": " + envelope.error().message});
  }
  if (!envelope || envelope->header.sequence != connection->received + 1) {
    // A frame is damaged or one was lost: only a fresh connection knows again what was said.
    spdlog::warn("bad_frame service={} error=\"{}\"", options.service,
                 envelope ? fmt::format("sequence {}, expected {}", envelope->header.sequence,
                                        connection->received + 1)
                          : envelope.error().message);
    return lost("damaged or lost message");
  }
  ++connection->received;
  if (!up) return handle_before_up(*envelope);
  if (callbacks.on_message) callbacks.on_message(*envelope);
}

void Client::State::handle_before_up(const Envelope& envelope) {
  if (const auto* message = std::get_if<Welcome>(&envelope.body)) return come_up(*message);
  const auto* reply = std::get_if<ErrorReply>(&envelope.body);
  if (reply != nullptr && reply->error.code == ErrorCode::kIncompatible) {
    return give_up(reply->error);
  }
  lost(reply != nullptr ? reply->error.message : "a message before Welcome");
}

void Client::State::come_up(const Welcome& message) {
  if (!fingerprint.empty() && !message.fingerprint.empty() && fingerprint != message.fingerprint) {
    return give_up(
        {ErrorCode::kIncompatible, fmt::format("{} serves model {}, {} expects {}", message.service,
                                               message.fingerprint, options.role, fingerprint)});
  }
  // The server sends its regions before the Welcome, on the other socket.
  if (!connection->received_regions) {
    if (const Status status = take_regions(); !status) {
      return status.error().code == ErrorCode::kUnavailable ? lost(status.error().message)
                                                            : give_up(status.error());
    }
    if (!connection->received_regions) return lost("Welcome without regions");
  }
  if (fingerprint.empty()) fingerprint = message.fingerprint;
  welcome = message;
  up = true;
  regions = std::move(*connection->received_regions);
  spdlog::info("peer_up service={} pid={} regions={} losses={}", options.service, message.pid,
               regions.size(), losses);
  if (callbacks.on_up) callbacks.on_up(message);
}

Result<std::uint64_t> Client::State::send(const Message& message, std::uint64_t trace_id) {
  const Header header{options.role, process_incarnation(), connection->sent + 1, 0,
                      trace_id,     monotonic_ns()};
  K3_ASSIGN(const std::vector<std::byte> frame, encode(header, message));
  std::vector<zmq::message_t> parts;
  parts.emplace_back(frame.data(), frame.size());
  if (send_parts(connection->dealer, std::move(parts)) != Sent::kQueued) {
    // The peer does not read: only a fresh connection can say this message again. Shut rather than
    // closed, so that on_down never runs inside a caller's send().
    spdlog::warn("peer_slow service={} action=reconnect", options.service);
    connection->closing = true;
    ::shutdown(connection->lifeline.get(), SHUT_RDWR);
    return fail(ErrorCode::kUnavailable, "{}: the queue of unsent messages is full",
                options.service);
  }
  return ++connection->sent;
}

Result<std::unique_ptr<Client>> Client::create(EventLoop& loop,
                                               const std::filesystem::path& run_dir,
                                               Options options, Callbacks callbacks) {
  K3_ASSIGN(Endpoint endpoint, endpoint_in(run_dir, options.service));
  auto state =
      std::make_unique<State>(loop, std::move(options), std::move(callbacks), std::move(endpoint));
  state->start_trying();
  state->try_connect();
  return std::unique_ptr<Client>(new Client(std::move(state)));
}

Client::Client(std::unique_ptr<State> state) : state_(std::move(state)) {}
Client::~Client() = default;

bool Client::up() const { return state_->usable(); }
std::uint32_t Client::losses() const { return state_->losses; }
const std::optional<Error>& Client::failure() const { return state_->failure; }
const std::optional<Welcome>& Client::welcome() const { return state_->welcome; }

const std::filesystem::path& Client::endpoint() const { return state_->endpoint.lifeline_path; }

Result<std::uint64_t> Client::send(const Message& message, std::uint64_t trace_id) {
  if (!up()) return fail(ErrorCode::kUnavailable, "{} is down", state_->options.service);
  return state_->send(message, trace_id);
}

Result<std::span<const std::byte>> Client::resolve(const Ref& ref) const {
  const std::string& service = state_->options.service;
  if (!up()) return fail(ErrorCode::kUnavailable, "{} is down", service);
  const auto found = state_->regions.find(ref.region);
  if (found == state_->regions.end() || found->second.generation != ref.generation) {
    return fail(ErrorCode::kUnavailable, "{}: region {} of generation {:016x} is not the peer's",
                service, ref.region, ref.generation);
  }
  const std::span<const std::byte> bytes = found->second.mapping.data();
  if (ref.offset > bytes.size() || ref.length > bytes.size() - ref.offset) {
    return fail(ErrorCode::kFailed, "{}: {} bytes at {} lie outside of region {} of {} bytes",
                service, ref.length, ref.offset, ref.region, bytes.size());
  }
  return bytes.subspan(ref.offset, ref.length);
}

Status wait_until_up(EventLoop& loop, const Client& client, int stop_fd,
                     std::chrono::milliseconds limit) {
  using Clock = EventLoop::Clock;
  const Clock::time_point deadline = Clock::now() + limit;
  bool stop_signal = false;
  EventLoop::SourceId watch = 0;
  if (stop_fd >= 0) watch = loop.watch(stop_fd, [&] { stop_signal = true; });
  while (!client.up() && !client.failure() && !stop_signal && !loop.stopped()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) break;
    loop.run_once(left);
  }
  loop.remove(watch);
  if (client.up()) return {};
  if (client.failure()) return tl::unexpected<Error>(*client.failure());
  if (stop_signal || loop.stopped()) return fail(ErrorCode::kStopped, "stopped while waiting");
  return fail(ErrorCode::kUnavailable, "{}: not up after {} ms", client.endpoint().string(),
              limit.count());
}

}  // namespace k3::ipc
