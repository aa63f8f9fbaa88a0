#include "common/ipc/lifeline.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace k3::ipc {
namespace {

// The regions packet: a header and `count` records, in the machine's byte order (both ends are on
// one host), with one descriptor a record in the same order.
struct RegionsHeader {
  std::uint32_t version = 1;
  std::uint32_t count = 0;
};
struct RegionRecord {
  std::uint32_t region = 0;
  std::uint32_t kind = 0;  // RegionKind
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;
};

std::string errno_text() { return std::strerror(errno); }

sockaddr_un address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& text = path.native();
  K3_CHECK(text.size() < sizeof(address.sun_path), text);  // endpoint_in refuses longer ones
  std::memcpy(address.sun_path, text.c_str(), text.size() + 1);
  return address;
}

UniqueFd new_socket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

ssize_t receive_packet(int fd, msghdr& packet) {
  ssize_t got = -1;
  do {
    got = ::recvmsg(fd, &packet, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  return got;
}

ssize_t send_packet(int fd, const msghdr& packet) {
  ssize_t put = -1;
  do {
    put = ::sendmsg(fd, &packet, MSG_NOSIGNAL);
  } while (put < 0 && errno == EINTR);
  return put;
}

// Space for the control message of kMaxRegions descriptors.
struct alignas(cmsghdr) DescriptorBuffer {
  char bytes[CMSG_SPACE(kMaxRegions * sizeof(int))] = {};
};

// Takes every descriptor out of a received packet, so that none leaks however malformed it is.
std::vector<UniqueFd> take_descriptors(msghdr& packet) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&packet); part != nullptr; part = CMSG_NXTHDR(&packet, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

Result<UniqueFd> listen_lifeline(const std::filesystem::path& path) {
  UniqueFd fd = new_socket();
  if (!fd.valid()) return fail(ErrorCode::kFailed, "{}: socket: {}", path.string(), errno_text());
  ::unlink(path.c_str());
  const sockaddr_un address = address_of(path);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    return fail(ErrorCode::kFailed, "{}: cannot listen: {}", path.string(), errno_text());
  }
  return fd;
}

UniqueFd accept_lifeline(int listener) {
  while (true) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid() || (errno != EINTR && errno != ECONNABORTED)) return fd;
  }
}

Result<std::optional<ConnectionId>> receive_connection_id(int fd) {
  ConnectionId id{};
  std::byte excess{};
  iovec parts[] = {{id.data(), id.size()}, {&excess, 1}};
  msghdr packet{};
  packet.msg_iov = parts;
  packet.msg_iovlen = 2;
  const ssize_t got = receive_packet(fd, packet);
  if (got < 0 && errno == EAGAIN) return std::nullopt;
  if (got < 0) return fail(ErrorCode::kUnavailable, "lifeline: {}", errno_text());
  if (got == 0) return fail(ErrorCode::kUnavailable, "lifeline: end of file");
  if (got != static_cast<ssize_t>(id.size()) || id[0] == std::byte{0}) {
    return fail(ErrorCode::kUnavailable, "lifeline: {} bytes are not a connection id of {}", got,
                id.size());
  }
  return id;
}

Status send_regions(int fd, std::span<const SharedRegion> regions) {
  K3_CHECK(regions.size() <= kMaxRegions, fmt::format("{} regions", regions.size()));
  RegionsHeader header;
  header.count = static_cast<std::uint32_t>(regions.size());
  std::vector<RegionRecord> records;
  std::vector<int> fds;
  for (const SharedRegion& region : regions) {
    records.push_back(
        {region.region, static_cast<std::uint32_t>(region.kind), region.generation, region.bytes});
    fds.push_back(region.fd);
  }
  iovec parts[] = {{&header, sizeof(header)},
                   {records.data(), records.size() * sizeof(RegionRecord)}};
  msghdr packet{};
  packet.msg_iov = parts;
  packet.msg_iovlen = 2;
  DescriptorBuffer descriptors;
  if (!fds.empty()) {
    const std::size_t bytes = fds.size() * sizeof(int);
    packet.msg_control = descriptors.bytes;
    packet.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* rights = CMSG_FIRSTHDR(&packet);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(rights), fds.data(), bytes);
  }
  if (send_packet(fd, packet) < 0) {
    return fail(ErrorCode::kUnavailable, "lifeline: sending {} regions: {}", regions.size(),
                errno_text());
  }
  return {};
}

Result<UniqueFd> connect_lifeline(const std::filesystem::path& path, const ConnectionId& id) {
  UniqueFd fd = new_socket();
  if (!fd.valid()) return fail(ErrorCode::kFailed, "{}: socket: {}", path.string(), errno_text());
  const sockaddr_un address = address_of(path);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return fail(ErrorCode::kUnavailable, "{}: {}", path.string(), errno_text());
  }
  ConnectionId sent = id;
  iovec part{sent.data(), sent.size()};
  msghdr packet{};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  if (send_packet(fd.get(), packet) != static_cast<ssize_t>(sent.size())) {
    return fail(ErrorCode::kUnavailable, "{}: {}", path.string(), errno_text());
  }
  return fd;
}

Result<std::optional<std::vector<ReceivedRegion>>> receive_regions(int fd) {
  RegionsHeader header;
  std::vector<RegionRecord> records(kMaxRegions);
  iovec parts[] = {{&header, sizeof(header)},
                   {records.data(), records.size() * sizeof(RegionRecord)}};
  DescriptorBuffer descriptors;
  msghdr packet{};
  packet.msg_iov = parts;
  packet.msg_iovlen = 2;
  packet.msg_control = descriptors.bytes;
  packet.msg_controllen = sizeof(descriptors.bytes);
  const ssize_t got = receive_packet(fd, packet);
  if (got < 0 && errno == EAGAIN) return std::nullopt;
  if (got < 0) return fail(ErrorCode::kUnavailable, "lifeline: {}", errno_text());
  if (got == 0) return fail(ErrorCode::kUnavailable, "lifeline: end of file");

  std::vector<UniqueFd> fds = take_descriptors(packet);
  const auto bytes = static_cast<std::size_t>(got);
  if ((packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || bytes < sizeof(header) ||
      header.version != RegionsHeader{}.version ||
      bytes != sizeof(header) + header.count * sizeof(RegionRecord) || header.count != fds.size()) {
    return fail(ErrorCode::kFailed,
                "lifeline: malformed regions packet: {} bytes, version {}, {} regions, {} "
                "descriptors received",
                bytes, header.version, header.count, fds.size());
  }
  std::vector<ReceivedRegion> regions;
  for (std::size_t i = 0; i < fds.size(); ++i) {
    const RegionRecord& record = records[i];
    if (record.kind > static_cast<std::uint32_t>(RegionKind::kFile)) {
      return fail(ErrorCode::kFailed, "lifeline: region {} is of the unknown kind {}",
                  record.region, record.kind);
    }
    regions.push_back({record.region, record.generation, record.bytes, std::move(fds[i]),
                       static_cast<RegionKind>(record.kind)});
  }
  return regions;
}

}  // namespace k3::ipc
