// The other process of the connection tests: `ipc_test_peer MODE RUNDIR`.
//   server     serves "trunk" with one region of 'A's; answers DescribeTrunk with a UnitReady that
//              refers to all of it, and every other message with itself
//   client     connects to "trunk" and stays
//   stuck      connects to "trunk", then stops itself (SIGSTOP) without reading any more
//   fds        exits with the number of descriptors it inherited above stderr
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <variant>

#include "common/arena/arena.h"
#include "common/ipc/client.h"
#include "common/ipc/event_loop.h"
#include "common/ipc/server.h"

namespace k3::ipc::test {
namespace {

Status serve(const std::filesystem::path& dir) {
  K3_ASSIGN(const Arena arena, Arena::create("test", 4096));
  std::ranges::fill(arena.data(), std::byte{'A'});
  EventLoop loop;
  std::unique_ptr<Server> server;
  Server::Callbacks callbacks;
  callbacks.on_message = [&](Server::ClientId id, const Envelope& envelope) {
    const bool describe = std::holds_alternative<DescribeTrunk>(envelope.body);
    const Message whole = UnitReady{0, 0, {1, arena.generation(), 0, 4096}, {}};
    server->send(id, describe ? whole : envelope.body, envelope.header.sequence);
  };
  const SharedRegion region{1, arena.generation(), 4096, arena.fd()};
  K3_ASSIGN(server, Server::bind(loop, dir, {"trunk", "model", {region}}, std::move(callbacks)));
  loop.run();
  return {};
}

Status connect(const std::filesystem::path& dir, bool stuck) {
  EventLoop loop;
  Client::Callbacks callbacks;
  callbacks.on_up = [&](const Welcome&) {
    if (stuck) ::raise(SIGSTOP);
  };
  K3_ASSIGN(const std::unique_ptr<Client> client,
            Client::create(loop, dir, {"trunk", "peer", ""}, std::move(callbacks)));
  loop.run();
  return {};
}

int inherited_descriptors() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    if (std::stoi(entry.path().filename()) > 2) ++count;
  }
  return count - 1;  // the directory's own
}

}  // namespace
}  // namespace k3::ipc::test

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string mode = argv[1];
  if (mode == "fds") return k3::ipc::test::inherited_descriptors();
  const k3::Status status = mode == "server" ? k3::ipc::test::serve(argv[2])
                                             : k3::ipc::test::connect(argv[2], mode == "stuck");
  if (status) return 0;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return 1;
}
