// What the connection tests share: a private run directory, and waiting for a condition.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/ipc/client.h"
#include "common/ipc/event_loop.h"
#include "common/ipc/server.h"

namespace k3::ipc::test {

// Removed with everything in it.
class TemporaryDir {
 public:
  TemporaryDir() {
    std::string name = "/tmp/k3-ipc-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TemporaryDir() { std::filesystem::remove_all(path_); }
  TemporaryDir(const TemporaryDir&) = delete;
  TemporaryDir& operator=(const TemporaryDir&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Runs `loop` until `done`; false when a minute has passed without it.
inline bool run_until(EventLoop& loop, const std::function<bool()>& done) {
  const auto deadline = EventLoop::Clock::now() + std::chrono::minutes(1);
  while (!done()) {
    if (EventLoop::Clock::now() > deadline) return false;
    loop.run_once(std::chrono::milliseconds(50));
  }
  return true;
}

// Runs every event that is ready, and those they cause, until the loop is idle for `quiet`.
inline void run_until_idle(EventLoop& loop) {
  while (loop.run_once(std::chrono::milliseconds(50))) {
  }
}

// A server whose callbacks record; it answers nothing by itself.
struct RecordingServer {
  std::vector<std::pair<Server::ClientId, Envelope>> messages;
  std::vector<Server::ClientId> gone;
  std::unique_ptr<Server> server;

  Status bind(EventLoop& loop, const std::filesystem::path& dir, Server::Options options) {
    Server::Callbacks callbacks;
    callbacks.on_message = [this](Server::ClientId id, const Envelope& envelope) {
      messages.emplace_back(id, envelope);
    };
    callbacks.on_disconnect = [this](Server::ClientId id) { gone.push_back(id); };
    callbacks.stats = [] { return Stats{{{"requests", 7}}}; };
    K3_ASSIGN(server, Server::bind(loop, dir, std::move(options), std::move(callbacks)));
    return {};
  }
};

// A client whose callbacks record.
struct RecordingClient {
  std::vector<Welcome> ups;
  std::vector<Envelope> messages;
  int downs = 0;
  std::unique_ptr<Client> client;

  Status create(EventLoop& loop, const std::filesystem::path& dir, Client::Options options) {
    Client::Callbacks callbacks;
    callbacks.on_up = [this](const Welcome& welcome) { ups.push_back(welcome); };
    callbacks.on_message = [this](const Envelope& envelope) { messages.push_back(envelope); };
    callbacks.on_down = [this] { ++downs; };
    K3_ASSIGN(client, Client::create(loop, dir, std::move(options), std::move(callbacks)));
    return {};
  }
  bool up() const { return client->up(); }
};

// How many mappings this process has of arenas created under `name`.
inline int mappings_of(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("/memfd:" + name + " ") != std::string::npos ? 1 : 0;
  }
  return count;
}

// One loop, one run directory.
class IpcTest : public testing::Test {
 protected:
  TemporaryDir dir_;
  EventLoop loop_;
};

}  // namespace k3::ipc::test
