// A client and a server that both live: handshake, messages, regions, control messages.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <variant>

#include "common/arena/arena.h"
#include "common/ipc/codec.h"
#include "common/observe/spans.h"
#include "tests/unit/common/ipc/support.h"

namespace k3::ipc::test {
namespace {

using Connection = IpcTest;
using testing::HasSubstr;

SharedRegion share(const Arena& arena, std::uint32_t region) {
  return {region, arena.generation(), arena.data().size(), arena.fd()};
}

TEST_F(Connection, WelcomesAClient) {
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "abc", {}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", "abc"}));
  EXPECT_FALSE(client.up());
  EXPECT_FALSE(client.client->welcome());
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  ASSERT_EQ(client.ups.size(), 1u);
  EXPECT_EQ(client.ups[0].service, "k3-trunk");
  EXPECT_EQ(client.ups[0].pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(client.ups[0].fingerprint, "abc");
  EXPECT_EQ(server.server->clients().size(), 1u);
  EXPECT_EQ(client.client->losses(), 0u);
}

TEST_F(Connection, ClientMayStartFirst) {
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  loop_.run_once(std::chrono::milliseconds(50));
  EXPECT_FALSE(client.up());
  EXPECT_EQ(client.client->send(Stop{}).error().code, ErrorCode::kUnavailable);
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "abc", {}}));
  EXPECT_TRUE(run_until(loop_, [&] { return client.up(); }));
}

TEST_F(Connection, StampsHeaders) {
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  const Result<std::uint64_t> sequence = client.client->send(Subscribe{3, 1, 2}, 77);
  ASSERT_TRUE(sequence);
  EXPECT_EQ(*sequence, 2u);  // Hello was 1
  ASSERT_TRUE(run_until(loop_, [&] { return !server.messages.empty(); }));
  const auto& [id, request] = server.messages[0];
  EXPECT_EQ(request.header.sender, "compute");
  EXPECT_EQ(request.header.sequence, 2u);
  EXPECT_EQ(request.header.trace_id, 77u);
  EXPECT_NE(request.header.incarnation, 0u);
  EXPECT_NE(request.header.monotonic_ns, 0u);
  EXPECT_EQ(std::get<Subscribe>(request.body).pass, 3u);

  server.server->send(id, UnitRelease{3, 1}, request.header.sequence, request.header.trace_id);
  ASSERT_TRUE(run_until(loop_, [&] { return !client.messages.empty(); }));
  const Header& answer = client.messages[0].header;
  EXPECT_EQ(answer.sender, "k3-trunk");
  EXPECT_EQ(answer.sequence, 2u);  // Welcome was 1
  EXPECT_EQ(answer.in_reply_to, 2u);
  EXPECT_EQ(answer.trace_id, 77u);
}

TEST_F(Connection, KeepsOrderInBothDirections) {
  constexpr std::uint64_t kCount = 2000;
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  for (std::uint64_t i = 0; i < kCount; ++i) ASSERT_TRUE(client.client->send(BatchRelease{i}));
  ASSERT_TRUE(run_until(loop_, [&] { return server.messages.size() == kCount; }));
  for (std::uint64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(std::get<BatchRelease>(server.messages[i].second.body).batch, i);
  }
  const Server::ClientId id = server.messages[0].first;
  for (std::uint64_t i = 0; i < kCount; ++i) server.server->send(id, BatchRelease{i});
  ASSERT_TRUE(run_until(loop_, [&] { return client.messages.size() == kCount; }));
  for (std::uint64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(std::get<BatchRelease>(client.messages[i].body).batch, i);
  }
}

TEST_F(Connection, CarriesAMessageOf64Megabytes) {
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  std::string text(std::size_t{64} << 20, 'x');
  for (std::size_t i = 0; i < text.size(); i += 4093) text[i] = static_cast<char>(i % 251);
  server.server->send(server.server->clients().at(0), Decoded{text, ""});
  ASSERT_TRUE(run_until(loop_, [&] { return !client.messages.empty(); }));
  EXPECT_TRUE(std::get<Decoded>(client.messages[0].body).text == text);
}

TEST_F(Connection, RefusesAMessageLargerThanAFrame) {
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  const Message large = Decoded{std::string(kMaxFrameBytes, 'x'), ""};
  const Result<std::uint64_t> sent = client.client->send(large);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, ErrorCode::kFailed);
  EXPECT_THAT(sent.error().message, HasSubstr("268435456"));

  server.server->send(server.server->clients().at(0), large, 9);
  ASSERT_TRUE(run_until(loop_, [&] { return !client.messages.empty(); }));
  EXPECT_THAT(std::get<ErrorReply>(client.messages[0].body).error.message, HasSubstr("268435456"));
  EXPECT_EQ(client.messages[0].header.in_reply_to, 9u);
  EXPECT_TRUE(client.up());
}

TEST_F(Connection, ResolvesRegionsReadOnly) {
  Result<Arena> first = Arena::create("first", 4096);
  Result<Arena> second = Arena::create("second", 8192);
  ASSERT_TRUE(first && second);
  std::memcpy(first->data().data() + 100, "one", 3);
  std::memcpy(second->data().data() + 8189, "two", 3);
  RecordingServer server;
  ASSERT_TRUE(
      server.bind(loop_, dir_.path(), {"trunk", "", {share(*first, 5), share(*second, 6)}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  EXPECT_EQ(client.client->resolve({5, first->generation(), 0, 1}).error().code,
            ErrorCode::kUnavailable);
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));

  const auto one = client.client->resolve({5, first->generation(), 100, 3});
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_EQ(std::memcmp(one->data(), "one", 3), 0);
  const auto two = client.client->resolve({6, second->generation(), 8189, 3});
  ASSERT_TRUE(two) << two.error().message;
  EXPECT_EQ(std::memcmp(two->data(), "two", 3), 0);
  EXPECT_TRUE(client.client->resolve({6, second->generation(), 8192, 0}));

  const auto outside = client.client->resolve({6, second->generation(), 8190, 3});
  EXPECT_EQ(outside.error().code, ErrorCode::kFailed);
  EXPECT_THAT(outside.error().message, HasSubstr("8190"));
  EXPECT_THAT(outside.error().message, HasSubstr("8192"));
  EXPECT_EQ(
      client.client->resolve({6, second->generation(), 16, ~std::uint64_t{0} - 8}).error().code,
      ErrorCode::kFailed);
  EXPECT_EQ(client.client->resolve({6, second->generation() + 1, 0, 1}).error().code,
            ErrorCode::kUnavailable);
  EXPECT_EQ(client.client->resolve({7, second->generation(), 0, 1}).error().code,
            ErrorCode::kUnavailable);
}

TEST_F(Connection, SharesAsManyRegionsAsAPageCacheServiceHasShards) {
  Result<Arena> arena = Arena::create("shard", 4096);
  ASSERT_TRUE(arena);
  Server::Options options{"experts", "", {}};
  for (std::uint32_t i = 0; i < 253; ++i) options.regions.push_back(share(*arena, i));
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), options));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"experts", "compute", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  EXPECT_TRUE(client.client->resolve({252, arena->generation(), 0, 4096}));

  options.service = "more";
  options.regions.push_back(share(*arena, 253));
  RecordingServer more;
  EXPECT_EQ(more.bind(loop_, dir_.path(), options).error().code, ErrorCode::kUsage);
}

TEST_F(Connection, RegionSmallerThanAnnouncedIsAFailure) {
  Result<Arena> arena = Arena::create("small", 4096);
  ASSERT_TRUE(arena);
  SharedRegion lie = share(*arena, 1);
  lie.bytes = 4097;
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {lie}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.client->failure().has_value(); }));
  EXPECT_THAT(client.client->failure()->message, HasSubstr("4097"));
}

TEST_F(Connection, AClientThatResolvesNothingMapsNothing) {
  Result<Arena> arena = Arena::create("unwanted", 4096);
  ASSERT_TRUE(arena);
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {share(*arena, 1)}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "cli", "", false}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  EXPECT_EQ(mappings_of("unwanted"), 1);  // the owner's
  EXPECT_EQ(client.client->resolve({1, arena->generation(), 0, 1}).error().code,
            ErrorCode::kUnavailable);
}

TEST_F(Connection, ARegionThatCouldShrinkIsAFailure) {
  const UniqueFd fd(::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(fd.get(), 4096), 0);
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {{1, 77, 4096, fd.get()}}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.client->failure().has_value(); }));
  EXPECT_THAT(client.client->failure()->message,
              testing::AllOf(HasSubstr("trunk: region 1"), HasSubstr("shrinking")));
}

TEST_F(Connection, MapsFilesOnDiskThatAreDeclaredAsSuch) {
  const std::string path = std::string(K3_SOURCE_DIR) + "/README.md";
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  RecordingServer server;
  ASSERT_TRUE(
      server.bind(loop_, dir_.path(), {"experts", "", {{1, 77, 2, fd.get(), RegionKind::kFile}}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"experts", "compute", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  EXPECT_EQ(std::to_integer<char>(client.client->resolve({1, 77, 0, 1}).value()[0]), '#');
}

TEST_F(Connection, RefusesAnotherModel) {
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "model-a", {}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", "model-b"}));
  const Status status = wait_until_up(loop_, *client.client, -1, std::chrono::minutes(1));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kIncompatible);
  EXPECT_THAT(status.error().message, HasSubstr("model-a"));
  EXPECT_THAT(status.error().message, HasSubstr("model-b"));
  EXPECT_TRUE(client.ups.empty());
  EXPECT_TRUE(server.server->clients().empty());
  EXPECT_TRUE(server.gone.empty());
}

TEST_F(Connection, AFailedClientStopsTrying) {
  RecordingClient client;
  {
    RecordingServer server;
    ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "model-a", {}}));
    ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", "model-b"}));
    ASSERT_TRUE(run_until(loop_, [&] { return client.client->failure().has_value(); }));
  }
  RecordingServer right;
  ASSERT_TRUE(right.bind(loop_, dir_.path(), {"trunk", "model-b", {}}));
  run_until_idle(loop_);
  EXPECT_FALSE(client.up());
  EXPECT_TRUE(client.ups.empty());
}

TEST_F(Connection, AServiceWithoutAModelAcceptsEveryFingerprint) {
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"tokenizer", "", {}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"tokenizer", "cli", "model-b"}));
  EXPECT_TRUE(run_until(loop_, [&] { return client.up(); }));
}

TEST_F(Connection, ARestartedServerWithAnotherModelIsRefused) {
  RecordingClient client;
  {
    RecordingServer server;
    ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "model-a", {}}));
    ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", ""}));
    ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  }
  RecordingServer other;
  ASSERT_TRUE(other.bind(loop_, dir_.path(), {"trunk", "model-b", {}}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.client->failure().has_value(); }));
  EXPECT_EQ(client.client->failure()->code, ErrorCode::kIncompatible);
  EXPECT_EQ(client.downs, 1);
}

TEST_F(Connection, AnswersStats) {
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "cli", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  const auto sequence = client.client->send(StatsRequest{});
  ASSERT_TRUE(run_until(loop_, [&] { return !client.messages.empty(); }));
  const Stats& stats = std::get<Stats>(client.messages[0].body);
  ASSERT_EQ(stats.counters.size(), 1u);
  EXPECT_EQ(stats.counters[0].name, "requests");
  EXPECT_EQ(stats.counters[0].value, 7u);
  EXPECT_EQ(client.messages[0].header.in_reply_to, *sequence);
  EXPECT_TRUE(server.messages.empty());
}

TEST_F(Connection, SetsTheLogLevelOrSaysWhyNot) {
  const auto before = spdlog::get_level();
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "cli", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  ASSERT_TRUE(client.client->send(SetLogLevel{"error"}));
  ASSERT_TRUE(client.client->send(SetLogLevel{"shouting"}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.messages.size() == 2; }));
  const auto after = spdlog::get_level();
  spdlog::set_level(before);
  EXPECT_EQ(after, spdlog::level::err);
  EXPECT_TRUE(std::holds_alternative<Stats>(client.messages[0].body));
  const Error& error = std::get<ErrorReply>(client.messages[1].body).error;
  EXPECT_EQ(error.code, ErrorCode::kUsage);
  EXPECT_THAT(error.message, HasSubstr("shouting"));
}

TEST_F(Connection, SpansAreSwitchedAndTaken) {
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "cli", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  ASSERT_TRUE(client.client->send(SetSpans{true}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.messages.size() == 1; }));
  EXPECT_TRUE(std::holds_alternative<Stats>(client.messages[0].body));
  for (const std::uint32_t layer : {5u, 6u}) const spans::Scope scope("kda", layer);
  { const spans::Scope scope("mla", 7); }
  ASSERT_TRUE(client.client->send(SetSpans{false}));
  ASSERT_TRUE(client.client->send(TakeSpans{}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.messages.size() == 3; }));
  EXPECT_FALSE(spans::on());
  const Spans& taken = std::get<Spans>(client.messages[2].body);
  EXPECT_THAT(taken.names, testing::ElementsAre("kda", "mla"));
  ASSERT_EQ(taken.spans.size(), 3u);
  EXPECT_EQ(taken.spans[1].name, 0);
  EXPECT_EQ(taken.spans[1].argument, 6u);
  EXPECT_EQ(taken.spans[2].name, 1);
  EXPECT_TRUE(server.messages.empty());
}

TEST_F(Connection, SpansGoOffWithTheClientThatSwitchedThemOn) {
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "cli", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  ASSERT_TRUE(client.client->send(SetSpans{true}));
  ASSERT_TRUE(run_until(loop_, [&] { return spans::on(); }));
  client.client.reset();
  EXPECT_TRUE(run_until(loop_, [] { return !spans::on(); }));
}

TEST_F(Connection, StopStopsTheLoop) {
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "cli", ""}));
  ASSERT_TRUE(run_until(loop_, [&] { return client.up(); }));
  ASSERT_TRUE(client.client->send(Stop{}));
  EXPECT_TRUE(run_until(loop_, [&] { return loop_.stopped(); }));
}

TEST_F(Connection, WaitUntilUpNamesTheEndpointThatDoesNotAnswer) {
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "cli", ""}));
  const Status status = wait_until_up(loop_, *client.client, -1, std::chrono::milliseconds(50));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(status.error().message, HasSubstr((dir_.path() / "trunk.life").string()));
}

TEST_F(Connection, WaitUntilUpEndsOnTheStopSignal) {
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "cli", ""}));
  const UniqueFd signal(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  const Status status = wait_until_up(loop_, *client.client, signal.get(), std::chrono::minutes(1));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kStopped);
}

TEST_F(Connection, EndpointFilesArePrivateAndLeaveWithTheServer) {
  {
    RecordingServer server;
    ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {}}));
    for (const char* name : {"trunk.zmq", "trunk.life", "trunk.lock"}) {
      struct stat info {};
      ASSERT_EQ(::stat((dir_.path() / name).c_str(), &info), 0) << name;
      EXPECT_EQ(info.st_mode & 07777, 0600u) << name;
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(Connection, ASecondServerIsRefusedNamingTheFirst) {
  RecordingServer first;
  ASSERT_TRUE(first.bind(loop_, dir_.path(), {"trunk", "", {}}));
  RecordingServer second;
  const Status status = second.bind(loop_, dir_.path(), {"trunk", "", {}});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kFailed);
  EXPECT_THAT(status.error().message, HasSubstr(std::to_string(::getpid())));
  RecordingClient client;  // the first still serves
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  EXPECT_TRUE(run_until(loop_, [&] { return client.up(); }));
}

TEST_F(Connection, ReplacesTheFilesOfADeadServer) {
  for (const char* name : {"trunk.zmq", "trunk.life", "trunk.lock"}) {
    ASSERT_EQ(::mknod((dir_.path() / name).c_str(), S_IFREG | 0600, 0), 0);
  }
  RecordingServer server;
  ASSERT_TRUE(server.bind(loop_, dir_.path(), {"trunk", "", {}}));
  RecordingClient client;
  ASSERT_TRUE(client.create(loop_, dir_.path(), {"trunk", "compute", ""}));
  EXPECT_TRUE(run_until(loop_, [&] { return client.up(); }));
}

}  // namespace
}  // namespace k3::ipc::test
