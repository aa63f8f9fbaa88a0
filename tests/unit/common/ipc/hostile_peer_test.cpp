// Peers that break the rules: strangers, garbage, floods, gaps, other versions.
#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <variant>
#include <vector>
#include <zmq.hpp>

#include "common/ipc/codec.h"
#include "common/ipc/lifeline.h"
#include "common/ipc/run_dir.h"
#include "tests/unit/common/ipc/samples.h"
#include "tests/unit/common/ipc/support.h"

namespace k3::ipc::test {
namespace {

using HostilePeer = IpcTest;
using testing::HasSubstr;

// A client made by hand, which can do what Client never does.
struct RawClient {
  UniqueFd lifeline;
  zmq::socket_t dealer;

  RawClient(EventLoop& loop, const std::filesystem::path& dir, bool with_lifeline) {
    const Endpoint endpoint = endpoint_in(dir, "trunk").value();
    const ConnectionId id = new_connection_id();
    if (with_lifeline) lifeline = connect_lifeline(endpoint.lifeline_path, id).value();
    dealer = zmq::socket_t(loop.context(), zmq::socket_type::dealer);
    dealer.set(zmq::sockopt::linger, 0);
    dealer.set(zmq::sockopt::routing_id, zmq::buffer(id.data(), id.size()));
    dealer.connect(endpoint.zmq_address());
  }

  void send(std::uint64_t sequence, const Message& message) {
    const auto frame = encode({"raw", 1, sequence, 0, 0, 0}, message).value();
    send_bytes(frame);
  }
  bool send_bytes(const std::vector<std::byte>& bytes) {
    return dealer.send(zmq::buffer(bytes), zmq::send_flags::dontwait).has_value();
  }
  // The next message, running `loop` until it is there.
  Envelope receive(EventLoop& loop) {
    zmq::message_t frame;
    const bool got =
        run_until(loop, [&] { return dealer.recv(frame, zmq::recv_flags::dontwait).has_value(); });
    EXPECT_TRUE(got);
    const auto envelope = decode({frame.data<std::byte>(), frame.size()});
    EXPECT_TRUE(envelope);
    return envelope.value_or(Envelope{});
  }
  Error receive_error(EventLoop& loop) {
    const Envelope envelope = receive(loop);
    const auto* reply = std::get_if<ErrorReply>(&envelope.body);
    EXPECT_NE(reply, nullptr);
    return reply != nullptr ? reply->error : Error{};
  }
  bool hung_up() const {
    char byte = 0;
    const ssize_t got = ::recv(lifeline.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    if (got > 0) {  // the regions packet
      ::recv(lifeline.get(), &byte, 1, MSG_DONTWAIT);
      return false;
    }
    return got == 0;
  }
};

class HostileClient : public IpcTest {
 protected:
  void SetUp() override { ASSERT_TRUE(server_.bind(loop_, dir_.path(), {"trunk", "", {}})); }
  RecordingServer server_;
};

TEST_F(HostileClient, AStrangerWithoutALifelineIsAnsweredAndIgnored) {
  RawClient stranger(loop_, dir_.path(), false);
  stranger.send(1, Hello{"raw", ""});
  EXPECT_EQ(stranger.receive_error(loop_).code, ErrorCode::kUnavailable);
  stranger.send(2, Fetch{1, 2, {3}, 0});
  EXPECT_EQ(stranger.receive_error(loop_).code, ErrorCode::kUnavailable);
  EXPECT_TRUE(server_.messages.empty());
  EXPECT_TRUE(server_.server->clients().empty());
}

TEST_F(HostileClient, NothingIsDeliveredBeforeHello) {
  RawClient client(loop_, dir_.path(), true);
  client.send(1, Fetch{1, 2, {3}, 0});
  EXPECT_EQ(client.receive_error(loop_).code, ErrorCode::kUsage);
  EXPECT_TRUE(server_.messages.empty());
  client.send(2, Stop{});
  EXPECT_EQ(client.receive_error(loop_).code, ErrorCode::kUsage);
  EXPECT_FALSE(loop_.stopped());
  client.send(3, Hello{"raw", ""});
  EXPECT_TRUE(std::holds_alternative<Welcome>(client.receive(loop_).body));
}

TEST_F(HostileClient, AHelloTooLongToLogIsRefused) {
  RawClient client(loop_, dir_.path(), true);
  client.send(1, Hello{std::string(129, 'r'), ""});
  const Error error = client.receive_error(loop_);
  EXPECT_EQ(error.code, ErrorCode::kUsage);
  EXPECT_THAT(error.message, HasSubstr("129"));
  client.send(2, Hello{std::string(128, 'r'), ""});
  EXPECT_TRUE(std::holds_alternative<Welcome>(client.receive(loop_).body));
}

TEST_F(HostileClient, GarbageIsAnsweredAndTheConnectionGoesOn) {
  RawClient client(loop_, dir_.path(), true);
  client.send_bytes(std::vector<std::byte>(3));
  EXPECT_EQ(client.receive_error(loop_).code, ErrorCode::kFailed);
  client.send_bytes({});
  EXPECT_EQ(client.receive_error(loop_).code, ErrorCode::kFailed);
  client.dealer.send(zmq::str_buffer("a"), zmq::send_flags::sndmore);
  client.dealer.send(zmq::str_buffer("b"), zmq::send_flags::sndmore);
  client.dealer.send(zmq::str_buffer("c"), zmq::send_flags::none);
  EXPECT_EQ(client.receive_error(loop_).code, ErrorCode::kFailed);
  client.send(1, Hello{"raw", ""});
  EXPECT_TRUE(std::holds_alternative<Welcome>(client.receive(loop_).body));
}

TEST_F(HostileClient, AnotherProtocolVersionIsToldBoth) {
  RawClient client(loop_, dir_.path(), true);
  auto frame = encode({"raw", 1, 1, 0, 0, 0}, Hello{"raw", ""}).value();
  frame[16] = std::byte{2};  // protocolMajor
  client.send_bytes(frame);
  const Error error = client.receive_error(loop_);
  EXPECT_EQ(error.code, ErrorCode::kIncompatible);
  EXPECT_THAT(error.message, HasSubstr(version(2)));
  EXPECT_THAT(error.message, HasSubstr(version(kProtocolMajor)));
}

TEST_F(HostileClient, AMessageOfANewerVersionIsAnsweredAndCounts) {
  RawClient client(loop_, dir_.path(), true);
  client.send(1, Hello{"raw", ""});
  EXPECT_TRUE(std::holds_alternative<Welcome>(client.receive(loop_).body));
  auto frame = encode({"raw", 1, 2, 0, 0, 0}, StatsRequest{}).value();
  const auto other = encode({"raw", 1, 2, 0, 0, 0}, Stop{}).value();
  const auto tag = std::ranges::mismatch(frame, other).in1;  // where the two messages differ
  ASSERT_NE(tag, frame.end());
  *tag = std::byte{200};
  client.send_bytes(frame);
  const Envelope answer = client.receive(loop_);
  ASSERT_TRUE(std::holds_alternative<ErrorReply>(answer.body));
  EXPECT_EQ(answer.header.in_reply_to, 2u);
  client.send(3, StatsRequest{});
  EXPECT_TRUE(std::holds_alternative<Stats>(client.receive(loop_).body));
}

TEST_F(HostileClient, AFloodOfGarbageDoesNotStopOthers) {
  RawClient flood(loop_, dir_.path(), true);
  RecordingClient good;
  ASSERT_TRUE(good.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return good.up(); }));
  std::mt19937 random(1);
  std::vector<std::byte> garbage(64);
  for (std::uint64_t i = 0; i < 100; ++i) {
    for (int burst = 0; burst < 200; ++burst) {
      for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
      flood.send_bytes(garbage);
    }
    ASSERT_TRUE(good.client->send(BatchRelease{i}));
    ASSERT_TRUE(run_until(loop_, [&] { return server_.messages.size() == i + 1; }));
  }
  EXPECT_TRUE(good.up());
}

// Its lifeline and its Hello may both come in the middle of a turn of the server's loop.
TEST_F(HostilePeer, ANewcomerIsNoStrangerHoweverBusyTheServerIs) {
  constexpr int kRounds = 10;
  constexpr int kMessagesATurn = 64;
  std::vector<std::unique_ptr<RawClient>> newcomers;
  int handled = 0;
  Server::Callbacks callbacks;
  callbacks.on_message = [&](Server::ClientId, const Envelope&) {
    if (handled++ % kMessagesATurn == 0) {
      newcomers.push_back(std::make_unique<RawClient>(loop_, dir_.path(), true));
      newcomers.back()->send(1, Hello{"raw", ""});
    }
    // Long enough for ZeroMQ to bring the Hello before the turn is over.
    const auto end = EventLoop::Clock::now() + std::chrono::microseconds(200);
    while (EventLoop::Clock::now() < end) {
    }
  };
  const auto server = Server::bind(loop_, dir_.path(), {"trunk", "", {}}, std::move(callbacks));
  ASSERT_TRUE(server);
  RawClient busy(loop_, dir_.path(), true);
  busy.send(1, Hello{"raw", ""});
  EXPECT_TRUE(std::holds_alternative<Welcome>(busy.receive(loop_).body));
  for (int i = 0; i < kRounds * kMessagesATurn; ++i) {
    busy.send(static_cast<std::uint64_t>(i) + 2, BatchRelease{1});
  }
  ASSERT_TRUE(run_until(loop_, [&] { return handled == kRounds * kMessagesATurn; }));
  for (const auto& newcomer : newcomers) {
    EXPECT_TRUE(std::holds_alternative<Welcome>(newcomer->receive(loop_).body));
  }
}

TEST_F(HostileClient, AGapInTheSequenceDisconnects) {
  RawClient client(loop_, dir_.path(), true);
  client.send(1, Hello{"raw", ""});
  EXPECT_TRUE(std::holds_alternative<Welcome>(client.receive(loop_).body));
  client.send(3, BatchRelease{1});
  client.send(4, BatchRelease{2});
  ASSERT_TRUE(run_until(loop_, [&] { return server_.gone.size() == 1; }));
  EXPECT_TRUE(client.hung_up() || client.hung_up());  // the first call may take the regions
  EXPECT_TRUE(server_.messages.empty());
}

TEST_F(HostileClient, TalkingOnTheLifelineDisconnects) {
  RawClient client(loop_, dir_.path(), true);
  client.send(1, Hello{"raw", ""});
  EXPECT_TRUE(std::holds_alternative<Welcome>(client.receive(loop_).body));
  const ConnectionId again = new_connection_id();
  ASSERT_EQ(::send(client.lifeline.get(), again.data(), again.size(), 0), 16);
  EXPECT_TRUE(run_until(loop_, [&] { return server_.gone.size() == 1; }));
}

TEST_F(HostileClient, AnIdInUseIsRefusedAndItsOwnerGoesOn) {
  const Endpoint endpoint = endpoint_in(dir_.path(), "trunk").value();
  const ConnectionId id = new_connection_id();
  const UniqueFd first = connect_lifeline(endpoint.lifeline_path, id).value();
  const UniqueFd second = connect_lifeline(endpoint.lifeline_path, id).value();
  char byte = 0;
  ASSERT_TRUE(run_until(loop_, [&] { return ::recv(second.get(), &byte, 1, MSG_DONTWAIT) == 0; }));
  EXPECT_GT(::recv(first.get(), &byte, 1, MSG_DONTWAIT), 0);   // its regions
  EXPECT_EQ(::recv(first.get(), &byte, 1, MSG_DONTWAIT), -1);  // and no end of file
}

// A connection that never even says its id.
UniqueFd mute_lifeline(const std::filesystem::path& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

// What is logged while it lives.
class CapturedLog {
 public:
  CapturedLog() {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "captured", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
  }
  ~CapturedLog() { spdlog::set_default_logger(before_); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
};

TEST_F(HostileClient, SilentLifelinesKeepNobodyOut) {
  const CapturedLog log;
  RecordingClient early;
  ASSERT_TRUE(early.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return early.up(); }));
  const std::filesystem::path path = endpoint_in(dir_.path(), "trunk").value().lifeline_path;
  std::vector<UniqueFd> held;
  for (int i = 0; i < 200; ++i) {
    held.push_back(mute_lifeline(path));
    held.push_back(connect_lifeline(path, new_connection_id()).value());  // and no Hello
    loop_.run_once(std::chrono::milliseconds(50));
  }
  RecordingClient late;
  ASSERT_TRUE(late.create(loop_, dir_.path(), {"trunk", "cli", ""}));
  EXPECT_TRUE(run_until(loop_, [&] { return late.up(); }));
  char byte = 0;
  EXPECT_EQ(::recv(held.front().get(), &byte, 1, MSG_DONTWAIT), 0);  // it made room
  EXPECT_EQ(early.downs, 0);
  EXPECT_EQ(server_.server->clients().size(), 2u);
  EXPECT_THAT(log.text(), HasSubstr("client_evicted service=trunk client="));
}

// A server made by hand. Accepts one client at a time.
struct RawServer {
  UniqueFd listener;
  UniqueFd lifeline;
  zmq::socket_t router;
  std::string routing_id;

  RawServer(EventLoop& loop, const std::filesystem::path& dir) {
    const Endpoint endpoint = endpoint_in(dir, "trunk").value();
    router = zmq::socket_t(loop.context(), zmq::socket_type::router);
    router.set(zmq::sockopt::linger, 0);
    router.bind(endpoint.zmq_address());
    listener = listen_lifeline(endpoint.lifeline_path).value();
  }

  // Runs `loop` until a client has said Hello; hands it no region.
  bool accept(EventLoop& loop) {
    const bool connected = run_until(loop, [&] {
      lifeline = accept_lifeline(listener.get());
      return lifeline.valid();
    });
    if (!connected || !send_regions(lifeline.get(), {})) return false;
    zmq::message_t id;
    const bool greeted =
        run_until(loop, [&] { return router.recv(id, zmq::recv_flags::dontwait).has_value(); });
    if (!greeted) return false;
    routing_id = id.to_string();
    zmq::message_t hello;
    return router.recv(hello).has_value();
  }
  void send_bytes(std::span<const std::byte> frame) {
    router.send(zmq::buffer(routing_id), zmq::send_flags::sndmore);
    router.send(zmq::buffer(frame.data(), frame.size()), zmq::send_flags::none);
  }
  void send(std::uint64_t sequence, const Message& message) {
    send_bytes(encode({"k3-raw", 1, sequence, 1, 0, 0}, message).value());
  }
};

class HostileServer : public IpcTest {
 protected:
  void SetUp() override {
    ASSERT_TRUE(client_.create(loop_, dir_.path(), {"trunk", "compute", "model"}));
    ASSERT_TRUE(server_.accept(loop_));
  }
  RawServer server_{loop_, dir_.path()};
  RecordingClient client_;
};

TEST_F(HostileServer, AnotherProtocolVersionIsAFailure) {
  auto frame = encode({"k3-raw", 1, 1, 1, 0, 0}, Welcome{"k3-raw", 1, "model"}).value();
  frame[16] = std::byte{3};  // protocolMajor
  server_.send_bytes(frame);
  ASSERT_TRUE(run_until(loop_, [&] { return client_.client->failure().has_value(); }));
  EXPECT_EQ(client_.client->failure()->code, ErrorCode::kIncompatible);
  EXPECT_THAT(client_.client->failure()->message, HasSubstr(version(3)));
  EXPECT_TRUE(client_.ups.empty());
}

TEST_F(HostileServer, AWelcomeOfAnotherModelIsAFailure) {
  server_.send(1, Welcome{"k3-raw", 1, "other"});
  ASSERT_TRUE(run_until(loop_, [&] { return client_.client->failure().has_value(); }));
  EXPECT_EQ(client_.client->failure()->code, ErrorCode::kIncompatible);
  EXPECT_THAT(client_.client->failure()->message, HasSubstr("other"));
  EXPECT_TRUE(client_.ups.empty());
}

TEST_F(HostileServer, GarbageCountsAsDeathAndTheClientComesBack) {
  server_.send(1, Welcome{"k3-raw", 1, "model"});
  ASSERT_TRUE(run_until(loop_, [&] { return client_.up(); }));
  server_.send_bytes(std::vector<std::byte>(24));
  ASSERT_TRUE(run_until(loop_, [&] { return client_.downs == 1; }));
  ASSERT_TRUE(server_.accept(loop_));
  server_.send(1, Welcome{"k3-raw", 1, "model"});
  EXPECT_TRUE(run_until(loop_, [&] { return client_.up(); }));
}

TEST_F(HostileServer, ALostMessageCountsAsDeath) {
  server_.send(1, Welcome{"k3-raw", 1, "model"});
  ASSERT_TRUE(run_until(loop_, [&] { return client_.up(); }));
  server_.send(2, BatchRelease{1});
  server_.send(4, BatchRelease{3});
  ASSERT_TRUE(run_until(loop_, [&] { return client_.downs == 1; }));
  EXPECT_EQ(client_.messages.size(), 1u);
}

TEST_F(HostileServer, EndOfTheLifelineIsDeathThoughTheSocketIsOpen) {
  server_.send(1, Welcome{"k3-raw", 1, "model"});
  ASSERT_TRUE(run_until(loop_, [&] { return client_.up(); }));
  server_.lifeline.reset();
  EXPECT_TRUE(run_until(loop_, [&] { return client_.downs == 1; }));
}

TEST_F(HostileServer, AMessageInsteadOfAWelcomeIsNotDelivered) {
  server_.send(1, BatchRelease{1});
  ASSERT_TRUE(server_.accept(loop_));  // it hung up and came back
  EXPECT_TRUE(client_.messages.empty());
  EXPECT_TRUE(client_.ups.empty());
  EXPECT_EQ(client_.client->losses(), 0u);
}

}  // namespace
}  // namespace k3::ipc::test
