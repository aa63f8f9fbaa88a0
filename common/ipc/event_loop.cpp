#include "common/ipc/event_loop.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#if defined(__SANITIZE_THREAD__)
// libzmq is not instrumented: ThreadSanitizer sees neither its atomics nor, therefore, that message
// memory is handed from one of its threads to ours in order.
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:libzmq.so\n"; }
#endif

namespace k3::ipc {

EventLoop::SourceId EventLoop::add(Source source) {
  const SourceId id = next_id_++;
  sources_.emplace(id, std::move(source));
  return id;
}

EventLoop::SourceId EventLoop::watch(int fd, std::function<void()> ready) {
  Source source;
  source.fd = fd;
  source.callback = std::move(ready);
  return add(std::move(source));
}

EventLoop::SourceId EventLoop::watch(zmq::socket_t& socket, std::function<void()> ready) {
  Source source;
  source.socket = &socket;
  source.callback = std::move(ready);
  return add(std::move(source));
}

EventLoop::SourceId EventLoop::every(std::chrono::milliseconds period, std::function<void()> fire) {
  Source source;
  source.callback = std::move(fire);
  source.period = period;
  source.due = Clock::now() + period;
  return add(std::move(source));
}

void EventLoop::remove(SourceId id) { sources_.erase(id); }

std::chrono::milliseconds EventLoop::wait_time(std::chrono::milliseconds limit) const {
  const Clock::time_point now = Clock::now();
  for (const auto& [id, source] : sources_) {
    if (source.period.count() == 0) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(source.due - now);
    limit = std::min(limit, std::max(left, std::chrono::milliseconds{0}));
  }
  return limit;
}

bool EventLoop::run_once(std::chrono::milliseconds limit) {
  std::vector<zmq::pollitem_t> items;
  std::vector<SourceId> polled;
  for (const auto& [id, source] : sources_) {
    if (source.period.count() != 0) continue;
    void* socket = source.socket != nullptr ? source.socket->handle() : nullptr;
    items.push_back({socket, source.fd, ZMQ_POLLIN, 0});
    polled.push_back(id);
  }
  try {
    zmq::poll(items, wait_time(limit));
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) throw;
    return false;
  }

  // Ids first: a callback may remove any source, its own included.
  std::vector<SourceId> ready;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].revents != 0) ready.push_back(polled[i]);
  }
  const Clock::time_point now = Clock::now();
  for (auto& [id, source] : sources_) {
    if (source.period.count() == 0 || source.due > now) continue;
    source.due = now + source.period;
    ready.push_back(id);
  }
  for (const SourceId id : ready) {
    const auto found = sources_.find(id);
    if (found == sources_.end()) continue;
    const std::function<void()> callback = found->second.callback;
    callback();
  }
  return !ready.empty();
}

void EventLoop::run() {
  constexpr std::chrono::hours kNoLimit{1};
  while (!stopped_) run_once(kNoLimit);
}

}  // namespace k3::ipc
