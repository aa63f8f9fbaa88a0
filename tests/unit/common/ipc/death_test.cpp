// Processes that die, hang or come back.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <variant>

#include "tests/unit/common/ipc/support.h"
#include "tests/unit/common/ipc/test_process.h"

namespace k3::ipc::test {
namespace {

using Death = IpcTest;
using testing::HasSubstr;

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

bool all_are(std::span<const std::byte> bytes, char value) {
  return std::ranges::all_of(bytes, [&](std::byte b) { return b == std::byte(value); });
}

TEST_F(Death, AKilledClientIsReportedExactlyOnce) {
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {}}));
  TestProcess client("client", dir_.path());
  ASSERT_TRUE(run_until(loop_, [&] { return server.server->clients().size() == 1; }));
  const Server::ClientId id = server.server->clients()[0];
  client.kill();
  ASSERT_TRUE(run_until(loop_, [&] { return !server.gone.empty(); }));
  run_until_idle(loop_);
  EXPECT_THAT(server.gone, testing::ElementsAre(id));
  EXPECT_TRUE(server.server->clients().empty());
  server.server->send(id, UnitRelease{1, 2});  // skipped
  EXPECT_EQ(server.gone.size(), 1u);
}

TEST_F(Death, ARestartedServerIsFoundAgainWithANewArena) {
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  const auto ask_for_ref = [&]() -> Ref {
    client.messages.clear();
    EXPECT_TRUE(client.client->send(DescribeTrunk{}));
    EXPECT_TRUE(run_until(loop_, [&] { return !client.messages.empty(); }));
    return client.messages.empty() ? Ref{} : std::get<UnitReady>(client.messages[0].body).ref;
  };

  TestProcess first("server", dir_.path());
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  const Ref old_ref = ask_for_ref();
  const auto old_bytes = client.client->resolve(old_ref);
  ASSERT_TRUE(old_bytes) << old_bytes.error().message;
  EXPECT_TRUE(all_are(*old_bytes, 'A'));
  EXPECT_EQ(mappings_of("test"), 1);

  first.kill();
  ASSERT_TRUE(run_until(loop_, [&] { return client.downs == 1; }));
  EXPECT_FALSE(client.up());
  EXPECT_EQ(client.client->losses(), 1u);
  EXPECT_EQ(mappings_of("test"), 0);  // the next arena may be as large as memory allows
  EXPECT_EQ(client.client->resolve(old_ref).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(client.client->send(DescribeTrunk{}).error().code, ErrorCode::kUnavailable);

  TestProcess second("server", dir_.path());
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  EXPECT_EQ(client.ups.size(), 2u);
  EXPECT_EQ(client.ups[1].pid, static_cast<std::uint32_t>(second.pid()));
  EXPECT_EQ(client.client->resolve(old_ref).error().code, ErrorCode::kUnavailable);
  const Ref new_ref = ask_for_ref();
  EXPECT_NE(new_ref.generation, old_ref.generation);
  const auto new_bytes = client.client->resolve(new_ref);
  ASSERT_TRUE(new_bytes) << new_bytes.error().message;
  EXPECT_TRUE(all_are(*new_bytes, 'A'));
  run_until_idle(loop_);
  EXPECT_EQ(client.downs, 1);
}

TEST_F(Death, SurvivesManyRestarts) {
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  for (int round = 1; round <= 10; ++round) {
    TestProcess server("server", dir_.path());
    ASSERT_TRUE(run_until(loop_, [&] { return client.up(); })) << round;
    ASSERT_TRUE(client.client->send(BatchRelease{static_cast<std::uint64_t>(round)}));
    server.kill();
    ASSERT_TRUE(run_until(loop_, [&] { return client.downs == round; })) << round;
  }
  EXPECT_EQ(client.client->losses(), 10u);
}

TEST_F(Death, AnotherProcessOnTheEndpointIsNamedUntilItDies) {
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  TestProcess other("server", dir_.path());
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  RecordingServer server;
  const Status refused = server.bind(loop_, dir_.path(), {"trunk", "", {}});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr(std::to_string(other.pid())));
  other.kill();
  const Status status = server.bind(loop_, dir_.path(), {"trunk", "", {}});
  EXPECT_TRUE(status) << status.error().message;
}

TEST_F(Death, AThousandClientsLeaveNoDescriptor) {
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {}}));
  const auto visit = [&](std::size_t expected_gone) {
    {
      RecordingClient client;
      ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", ""}));
      ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
    }
    ASSERT_TRUE(run_until(loop_, [&] { return server.gone.size() == expected_gone; }));
  };
  visit(1);  // opens what ZeroMQ keeps
  const std::size_t before = open_descriptors();
  for (std::size_t i = 2; i <= 1000; ++i) ASSERT_NO_FATAL_FAILURE(visit(i));
  // ZeroMQ's own thread closes the last sockets.
  EXPECT_TRUE(run_until(loop_, [&] { return open_descriptors() <= before; }))
      << open_descriptors() << " descriptors, before " << before;
}

TEST_F(Death, ASlowClientIsDisconnectedAndTheOthersServed) {
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {}}));
  TestProcess stuck("stuck", dir_.path());
  ASSERT_TRUE(run_until(loop_, [&] { return server.server->clients().size() == 1; }));
  const Server::ClientId slow = server.server->clients()[0];
  RecordingClient other;
  ASSERT_TRUE(other.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return other.up(); }));

  const Message message = Rows{1, 1, std::vector<std::byte>(4096)};
  ASSERT_TRUE(run_until(loop_, [&] {
    for (int i = 0; i < 1000; ++i) server.server->send(slow, message);
    return !server.gone.empty();
  }));
  EXPECT_THAT(server.gone, testing::ElementsAre(slow));

  ASSERT_TRUE(other.client->send(BatchRelease{5}));
  EXPECT_TRUE(run_until(loop_, [&] { return !server.messages.empty(); }));
  // Awake again, it sees that it was dropped and registers anew.
  stuck.signal(SIGCONT);
  EXPECT_TRUE(run_until(loop_, [&] { return server.server->clients().size() == 2; }));
}

// The message that found the queue full, and those before it, must be said again: the client takes
// such a peer for lost, but never inside send().
TEST_F(Death, APeerThatDoesNotReadIsConnectedToAnew) {
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  const Message message = Rows{1, 1, std::vector<std::byte>(4096)};
  Result<std::uint64_t> sent = 0;
  for (int i = 0; i < 100'000 && sent; ++i) sent = client.client->send(message);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(client.up());
  EXPECT_EQ(client.downs, 0);
  EXPECT_EQ(client.client->send(message).error().code, ErrorCode::kUnavailable);

  ASSERT_TRUE(run_until(loop_, [&] { return client.downs == 1; }));
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  EXPECT_EQ(client.client->losses(), 1u);
  server.messages.clear();
  ASSERT_TRUE(client.client->send(BatchRelease{5}));
  EXPECT_TRUE(run_until(loop_, [&] { return !server.messages.empty(); }));
}

TEST_F(Death, AnExecutedChildInheritsNothing) {
  int before = 0;
  {
    TestProcess child("fds", dir_.path());
    before = child.wait();
  }
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  TestProcess child("fds", dir_.path());
  EXPECT_EQ(child.wait(), before);
}

}  // namespace
}  // namespace k3::ipc::test
