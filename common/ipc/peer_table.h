// The clients of a server: by number, by the routing id of their messages, and who has said what.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/ipc/event_loop.h"
#include "common/ipc/identity.h"

namespace k3::ipc {

struct Peer {
  UniqueFd lifeline;
  EventLoop::SourceId watch = 0;
  std::string routing_id;      // empty until the lifeline delivered it
  std::string role;            // of its Hello
  std::uint64_t received = 0;  // sequence of its latest message
  std::uint64_t sent = 0;      // sequence of our latest message to it
  bool greeted = false;        // Hello accepted
  bool closing = false;        // its lifeline is shut; the loop will see end of file
  bool warned = false;         // a malformed frame of it was logged
};

// Bookkeeping only: reads and writes no socket. One thread.
class PeerTable {
 public:
  using Id = std::uint64_t;

  // Ids grow and are never used again.
  Id add(UniqueFd lifeline);
  // References are valid until the peer is removed.
  Peer& at(Id id) { return peers_.at(id); }  // it is there
  Peer* find(Id id);                         // null when it is not

  // Enters what the lifeline delivered. kFailed when the peer has an id already, or another has
  // this one.
  Status identify(Id id, const ConnectionId& connection);
  std::optional<Id> with_routing_id(const std::string& routing_id) const;

  // Peers without a routing id, oldest first.
  std::vector<Id> unidentified() const;
  // The oldest peer that is not greeted.
  std::optional<Id> oldest_silent() const;

  Peer remove(Id id);

  std::size_t size() const { return peers_.size(); }
  const std::map<Id, Peer>& all() const { return peers_; }

 private:
  std::map<Id, Peer> peers_;
  std::map<std::string, Id, std::less<>> by_routing_id_;
  Id next_ = 1;
};

}  // namespace k3::ipc
