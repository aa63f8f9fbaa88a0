// Packets on the lifeline, honest and not.
#include "common/ipc/lifeline.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "common/arena/arena.h"
#include "tests/unit/common/ipc/support.h"

namespace k3::ipc::test {
namespace {

struct Pair {
  UniqueFd left;
  UniqueFd right;
};

Pair connected_pair() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

TEST(Lifeline, ConnectionIdsAreRandomAndNeverStartWithZero) {
  ConnectionId before{};
  for (int i = 0; i < 2000; ++i) {
    const ConnectionId id = new_connection_id();
    EXPECT_NE(id[0], std::byte{0});
    EXPECT_NE(id, before);
    before = id;
  }
}

TEST(Lifeline, DeliversTheIdAndThenTheRegions) {
  const TemporaryDir dir;
  const std::filesystem::path path = dir.path() / "x.life";
  const ConnectionId id = new_connection_id();
  EXPECT_EQ(connect_lifeline(path, id).error().code, ErrorCode::kUnavailable);

  const Result<UniqueFd> listener = listen_lifeline(path);
  ASSERT_TRUE(listener) << listener.error().message;
  EXPECT_FALSE(accept_lifeline(listener->get()).valid());
  const Result<UniqueFd> client = connect_lifeline(path, id);
  ASSERT_TRUE(client) << client.error().message;
  const UniqueFd server = accept_lifeline(listener->get());
  ASSERT_TRUE(server.valid());
  const auto received = receive_connection_id(server.get());
  ASSERT_TRUE(received && *received);
  EXPECT_EQ(**received, id);

  const auto none = receive_regions(client->get());
  ASSERT_TRUE(none);
  EXPECT_FALSE(*none);
  Result<Arena> arena = Arena::create("test", 4096);
  ASSERT_TRUE(arena);
  const SharedRegion region{3, arena->generation(), 4096, arena->fd(), RegionKind::kFile};
  ASSERT_TRUE(send_regions(server.get(), {&region, 1}));
  const auto regions = receive_regions(client->get());
  ASSERT_TRUE(regions && *regions);
  ASSERT_EQ((*regions)->size(), 1u);
  const ReceivedRegion& got = (*regions)->front();
  EXPECT_EQ(got.region, 3u);
  EXPECT_EQ(got.generation, arena->generation());
  EXPECT_EQ(got.bytes, 4096u);
  EXPECT_TRUE(got.fd.valid());
  EXPECT_EQ(got.kind, RegionKind::kFile);
}

TEST(Lifeline, NoRegionsIsNotEndOfFile) {
  const Pair pair = connected_pair();
  ASSERT_TRUE(send_regions(pair.left.get(), {}));
  const auto regions = receive_regions(pair.right.get());
  ASSERT_TRUE(regions && *regions);
  EXPECT_TRUE((*regions)->empty());
}

TEST(Lifeline, EndOfFileIsUnavailableOnBothSides) {
  Pair pair = connected_pair();
  pair.left.reset();
  EXPECT_EQ(receive_regions(pair.right.get()).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(receive_connection_id(pair.right.get()).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(send_regions(pair.right.get(), {}).error().code, ErrorCode::kUnavailable);
}

TEST(Lifeline, RefusesAnIdOfAnotherSizeOrReservedForm) {
  for (const std::size_t size : {1u, 15u, 17u, 1000u}) {
    const Pair pair = connected_pair();
    const std::vector<char> bytes(size, 'x');
    ASSERT_EQ(::send(pair.left.get(), bytes.data(), size, 0), static_cast<ssize_t>(size));
    EXPECT_FALSE(receive_connection_id(pair.right.get())) << size;
  }
  const Pair pair = connected_pair();
  const ConnectionId zero{};
  ASSERT_EQ(::send(pair.left.get(), zero.data(), zero.size(), 0), 16);
  EXPECT_FALSE(receive_connection_id(pair.right.get()));
}

// Sends `bytes` with `count` copies of the descriptor `fd`.
void send_raw(int to, const std::vector<std::uint32_t>& words, int fd, std::size_t count) {
  iovec part{const_cast<std::uint32_t*>(words.data()), words.size() * 4};
  std::vector<char> control(CMSG_SPACE(count * sizeof(int)));
  msghdr packet{};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  if (count > 0) {
    packet.msg_control = control.data();
    packet.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&packet);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &fd, sizeof(int));
    }
  }
  ASSERT_GT(::sendmsg(to, &packet, 0), 0);
}

TEST(Lifeline, RefusesMalformedRegionsAndLeaksNoDescriptor) {
  Result<Arena> arena = Arena::create("test", 4096);
  ASSERT_TRUE(arena);
  const Pair pair = connected_pair();
  const std::vector<std::uint32_t> record{7, 0, 1, 0, 4096, 0};
  const auto with_header = [&](std::uint32_t version, std::uint32_t count, int records) {
    std::vector<std::uint32_t> words{version, count};
    for (int i = 0; i < records; ++i) words.insert(words.end(), record.begin(), record.end());
    return words;
  };
  const std::size_t before = open_descriptors();
  const std::vector<std::pair<std::vector<std::uint32_t>, std::size_t>> bad{
      {{1}, 1},                            // shorter than a header
      {with_header(2, 1, 1), 1},           // another version
      {with_header(1, 2, 1), 1},           // fewer records than announced
      {with_header(1, 1, 2), 1},           // more records than announced
      {with_header(1, 1, 1), 0},           // no descriptor
      {with_header(1, 1, 1), 5},           // too many descriptors
      {with_header(1, 0xffffffff, 1), 1},  // count overflows
      {with_header(1, 300, 300), 253},     // longer than any valid packet
  };
  for (std::size_t i = 0; i < bad.size(); ++i) {
    send_raw(pair.left.get(), bad[i].first, arena->fd(), bad[i].second);
    const auto regions = receive_regions(pair.right.get());
    ASSERT_FALSE(regions) << i;
    EXPECT_EQ(regions.error().code, ErrorCode::kFailed) << i;
  }
  std::vector<std::uint32_t> unknown_kind = with_header(1, 1, 1);
  unknown_kind[3] = 2;
  send_raw(pair.left.get(), unknown_kind, arena->fd(), 1);
  EXPECT_EQ(receive_regions(pair.right.get()).error().code, ErrorCode::kFailed);
  EXPECT_EQ(open_descriptors(), before);
  send_raw(pair.left.get(), with_header(1, 1, 1), arena->fd(), 1);
  const auto good = receive_regions(pair.right.get());
  ASSERT_TRUE(good && *good);
  EXPECT_EQ((*good)->front().region, 7u);
}

}  // namespace
}  // namespace k3::ipc::test
