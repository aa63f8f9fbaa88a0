// The lifeline: a Unix SOCK_SEQPACKET connection beside the ZeroMQ one. Its end of file is the
// exact sign that the other process died; it also carries the descriptors of shared regions.
//
// Protocol: the client connects and sends its ConnectionId (16 bytes); the server answers with one
// packet of all regions and their descriptors. Nothing follows but end of file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "common/arena/arena.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/ipc/identity.h"
#include "common/ipc/server.h"

namespace k3::ipc {

// SCM_MAX_FD of Linux: descriptors that one packet can carry.
inline constexpr std::size_t kMaxRegions = 253;

struct ReceivedRegion {
  std::uint32_t region = 0;
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;
  UniqueFd fd;
  RegionKind kind = RegionKind::kMemory;
};

// All descriptors below are non-blocking and close on exec; no call blocks.

// Listens at `path` (mode 0600), replacing a stale socket file.
Result<UniqueFd> listen_lifeline(const std::filesystem::path& path);

// The next waiting connection; an invalid descriptor when there is none.
UniqueFd accept_lifeline(int listener);

// The client's id; nothing while it has not arrived. Any other packet, or end of file, is an error
// (kUnavailable).
Result<std::optional<ConnectionId>> receive_connection_id(int fd);

// Hands all `regions` (at most kMaxRegions) over. Errors: kUnavailable.
Status send_regions(int fd, std::span<const SharedRegion> regions);

// Connects to `path` and sends `id`. kUnavailable naming the path when no process listens there.
Result<UniqueFd> connect_lifeline(const std::filesystem::path& path, const ConnectionId& id);

// The regions; nothing while they have not arrived. kUnavailable at end of file, kFailed on a
// malformed packet or a kind of region that is not known.
Result<std::optional<std::vector<ReceivedRegion>>> receive_regions(int fd);

}  // namespace k3::ipc
