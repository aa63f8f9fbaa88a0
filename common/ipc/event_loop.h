// The single-threaded loop of a process: ZeroMQ sockets, descriptors and timers in one zmq::poll.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>
#include <zmq.hpp>

namespace k3::ipc {

// All calls from one thread. Callbacks may add and remove sources, their own included.
class EventLoop {
 public:
  using SourceId = std::uint64_t;
  using Clock = std::chrono::steady_clock;

  // Calls `ready` whenever `fd` is readable (or at end of file). The descriptor is borrowed.
  SourceId watch(int fd, std::function<void()> ready);
  // Calls `ready` whenever a message can be received from `socket`, which is borrowed.
  SourceId watch(zmq::socket_t& socket, std::function<void()> ready);
  // Calls `fire` every `period` until removed.
  SourceId every(std::chrono::milliseconds period, std::function<void()> fire);
  void remove(SourceId id);

  // Waits until something happens or `limit` has passed, runs the callbacks of all that is ready,
  // returns whether anything ran.
  bool run_once(std::chrono::milliseconds limit);

  // run_once until stop() is called.
  void run();
  void stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }

  // The process's ZeroMQ context: every socket of this loop is made from it.
  zmq::context_t& context() { return context_; }

 private:
  struct Source {
    int fd = -1;
    zmq::socket_t* socket = nullptr;
    std::function<void()> callback;
    std::chrono::milliseconds period{0};
    Clock::time_point due;
  };

  SourceId add(Source source);
  // Time until the next timer is due, at most `limit`, rounded up.
  std::chrono::milliseconds wait_time(std::chrono::milliseconds limit) const;

  zmq::context_t context_;
  std::map<SourceId, Source> sources_;
  SourceId next_id_ = 1;
  bool stopped_ = false;
};

}  // namespace k3::ipc
