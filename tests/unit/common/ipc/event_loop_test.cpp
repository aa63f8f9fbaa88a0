// Descriptors, sockets and timers in one loop, and callbacks that change it.
#include "common/ipc/event_loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/time.h>
#include <unistd.h>

#include <string>

#include "common/base/unique_fd.h"

namespace k3::ipc {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{60'000};

UniqueFd ready_event() { return UniqueFd(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)); }

TEST(EventLoop, ReportsAReadableDescriptorAsLongAsItIsReadable) {
  EventLoop loop;
  const UniqueFd event = ready_event();
  int calls = 0;
  loop.watch(event.get(), [&] { ++calls; });
  EXPECT_TRUE(loop.run_once(kLong));
  EXPECT_TRUE(loop.run_once(kLong));
  EXPECT_EQ(calls, 2);
}

TEST(EventLoop, ReportsEndOfFile) {
  EventLoop loop;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  ::close(ends[1]);
  bool called = false;
  loop.watch(reader.get(), [&] { called = true; });
  EXPECT_TRUE(loop.run_once(kLong));
  EXPECT_TRUE(called);
}

TEST(EventLoop, ReturnsFalseWhenNothingHappens) {
  EventLoop loop;
  EXPECT_FALSE(loop.run_once(milliseconds(1)));
  const UniqueFd idle(::eventfd(0, EFD_CLOEXEC));
  loop.watch(idle.get(), [] { FAIL(); });
  EXPECT_FALSE(loop.run_once(milliseconds(1)));
}

TEST(EventLoop, ReportsASocketUntilItIsDrained) {
  EventLoop loop;
  zmq::socket_t left(loop.context(), zmq::socket_type::pair);
  zmq::socket_t right(loop.context(), zmq::socket_type::pair);
  left.bind("inproc://test");
  right.connect("inproc://test");
  left.send(zmq::str_buffer("a"));
  left.send(zmq::str_buffer("b"));
  std::string seen;
  loop.watch(right, [&] {
    zmq::message_t message;
    ASSERT_TRUE(right.recv(message, zmq::recv_flags::dontwait));
    seen += message.to_string();
  });
  while (seen.size() < 2) ASSERT_TRUE(loop.run_once(kLong));
  EXPECT_EQ(seen, "ab");
  EXPECT_FALSE(loop.run_once(milliseconds(1)));
}

TEST(EventLoop, TimersFireAgainUntilRemoved) {
  EventLoop loop;
  int fired = 0;
  EventLoop::SourceId id = 0;
  id = loop.every(milliseconds(1), [&] {
    if (++fired == 3) loop.remove(id);
  });
  while (fired < 3) ASSERT_TRUE(loop.run_once(kLong));
  EXPECT_FALSE(loop.run_once(milliseconds(10)));
  EXPECT_EQ(fired, 3);
}

TEST(EventLoop, ABusyDescriptorDoesNotStarveTimers) {
  EventLoop loop;
  const UniqueFd event = ready_event();
  bool fired = false;
  loop.watch(event.get(), [] {});
  loop.every(milliseconds(1), [&] { fired = true; });
  const auto deadline = EventLoop::Clock::now() + kLong;
  while (!fired && EventLoop::Clock::now() < deadline) loop.run_once(kLong);
  EXPECT_TRUE(fired);
}

TEST(EventLoop, ACallbackMayRemoveEverySource) {
  EventLoop loop;
  const UniqueFd first = ready_event();
  const UniqueFd second = ready_event();
  int calls = 0;
  EventLoop::SourceId a = 0;
  EventLoop::SourceId b = 0;
  // Captured by value as well: the function must outlive its own removal.
  const std::string witness(100, 'x');
  const auto remove_both = [&, witness] {
    loop.remove(a);
    loop.remove(b);
    ++calls;
    EXPECT_EQ(witness, std::string(100, 'x'));
  };
  a = loop.watch(first.get(), remove_both);
  b = loop.watch(second.get(), remove_both);
  EXPECT_TRUE(loop.run_once(kLong));
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(loop.run_once(milliseconds(1)));
}

TEST(EventLoop, ACallbackMayAddSources) {
  EventLoop loop;
  const UniqueFd first = ready_event();
  const UniqueFd second = ready_event();
  int added_calls = 0;
  EventLoop::SourceId id = 0;
  id = loop.watch(first.get(), [&] {
    loop.remove(id);
    loop.watch(second.get(), [&] { ++added_calls; });
  });
  EXPECT_TRUE(loop.run_once(kLong));
  EXPECT_EQ(added_calls, 0);
  EXPECT_TRUE(loop.run_once(kLong));
  EXPECT_EQ(added_calls, 1);
}

TEST(EventLoop, RunEndsWithStop) {
  EventLoop loop;
  const UniqueFd event = ready_event();
  loop.watch(event.get(), [&] { loop.stop(); });
  loop.run();
  EXPECT_TRUE(loop.stopped());
}

TEST(EventLoop, SurvivesSignals) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) {};  // without SA_RESTART: poll returns EINTR
  ASSERT_EQ(::sigaction(SIGALRM, &action, &before), 0);
  const itimerval every_ms{{0, 1000}, {0, 1000}};
  const itimerval off{};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &every_ms, nullptr), 0);
  EventLoop loop;
  int fired = 0;
  loop.every(milliseconds(5), [&] { ++fired; });
  while (fired < 5) loop.run_once(kLong);
  ASSERT_EQ(::setitimer(ITIMER_REAL, &off, nullptr), 0);
  ASSERT_EQ(::sigaction(SIGALRM, &before, nullptr), 0);
  EXPECT_EQ(fired, 5);
}

}  // namespace
}  // namespace k3::ipc
