// A client of a service that runs in the test's own event loop.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "common/ipc/client.h"
#include "common/ipc/event_loop.h"
#include "common/ipc/messages.h"

namespace k3::test {

// Turns the loop until `done`; false when a generous limit passes first.
inline bool run_until(ipc::EventLoop& loop, const std::function<bool()>& done) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!done()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    loop.run_once(std::chrono::milliseconds(100));
  }
  return true;
}

class ServiceClient {
 public:
  ServiceClient(ipc::EventLoop& loop, const std::filesystem::path& run_dir, std::string service)
      : loop_(loop) {
    auto made = ipc::Client::create(
        loop, run_dir, {std::move(service), "test", ""},
        {nullptr, [this](const ipc::Envelope& envelope) { inbox_.push_back(envelope.body); },
         nullptr});
    if (!made) throw std::runtime_error(made.error().message);
    client_ = std::move(*made);
  }

  ipc::Client& operator*() { return *client_; }
  ipc::Client* operator->() { return client_.get(); }

  bool wait_until_up() {
    return run_until(loop_, [this] { return client_->up(); });
  }

  void send(const ipc::Message& message) { ASSERT_TRUE(client_->send(message)); }

  // The next message, waited for; a test failure and nothing when it is of another type.
  template <class T>
  std::optional<T> next() {
    if (!run_until(loop_, [this] { return !inbox_.empty(); })) {
      ADD_FAILURE() << "no message came";
      return std::nullopt;
    }
    const ipc::Message message = std::move(inbox_.front());
    inbox_.pop_front();
    if (const T* body = std::get_if<T>(&message)) return *body;
    if (const auto* error = std::get_if<ipc::ErrorReply>(&message)) {
      ADD_FAILURE() << "an error instead: " << error->error.message;
    } else {
      ADD_FAILURE() << "message number " << message.index() << " of the variant instead";
    }
    return std::nullopt;
  }

  template <class T>
  std::optional<T> ask(const ipc::Message& request) {
    send(request);
    return next<T>();
  }

  // A counter of the service.
  std::uint64_t counter(const std::string& name) {
    const auto stats = ask<ipc::Stats>(ipc::StatsRequest{});
    if (!stats) return 0;
    for (const ipc::Counter& counter : stats->counters) {
      if (counter.name == name) return counter.value;
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }

  std::string bytes(const ipc::Ref& ref) {
    const auto span = client_->resolve(ref);
    if (!span) {
      ADD_FAILURE() << span.error().message;
      return {};
    }
    return {reinterpret_cast<const char*>(span->data()), span->size()};
  }

 private:
  ipc::EventLoop& loop_;
  std::deque<ipc::Message> inbox_;
  std::unique_ptr<ipc::Client> client_;
};

// Switches read faults of the services created while it lives.
class FaultFile {
 public:
  explicit FaultFile(std::filesystem::path file) : file_(std::move(file)) {
    ::setenv("K3_READ_FAULTS", file_.c_str(), 1);
  }
  ~FaultFile() { ::unsetenv("K3_READ_FAULTS"); }
  FaultFile(const FaultFile&) = delete;
  FaultFile& operator=(const FaultFile&) = delete;

  // Replaced in one step: readers look at it all the time.
  void set(const std::string& faults) {
    const std::filesystem::path next = file_.string() + ".next";
    std::ofstream(next) << faults << '\n';
    std::filesystem::rename(next, file_);
  }
  void clear() { std::filesystem::remove(file_); }

 private:
  std::filesystem::path file_;
};

}  // namespace k3::test
