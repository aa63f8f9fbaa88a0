#include "common/ipc/peer_table.h"

#include <algorithm>
#include <utility>

namespace k3::ipc {

PeerTable::Id PeerTable::add(UniqueFd lifeline) {
  const Id id = next_++;
  peers_[id].lifeline = std::move(lifeline);
  return id;
}

Peer* PeerTable::find(Id id) {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : &found->second;
}

Status PeerTable::identify(Id id, const ConnectionId& connection) {
  Peer& peer = at(id);
  if (!peer.routing_id.empty()) {
    return fail(ErrorCode::kFailed, "lifeline: a second connection id");
  }
  std::string routing_id(reinterpret_cast<const char*>(connection.data()), connection.size());
  const auto [entry, is_new] = by_routing_id_.emplace(routing_id, id);
  if (!is_new) {
    return fail(ErrorCode::kFailed, "lifeline: connection id in use by client {}", entry->second);
  }
  peer.routing_id = std::move(routing_id);
  return {};
}

std::optional<PeerTable::Id> PeerTable::with_routing_id(const std::string& routing_id) const {
  const auto found = by_routing_id_.find(routing_id);
  if (found == by_routing_id_.end()) return std::nullopt;
  return found->second;
}

std::vector<PeerTable::Id> PeerTable::unidentified() const {
  std::vector<Id> ids;
  for (const auto& [id, peer] : peers_) {
    if (peer.routing_id.empty()) ids.push_back(id);
  }
  return ids;
}

std::optional<PeerTable::Id> PeerTable::oldest_silent() const {
  const auto silent =
      std::ranges::find_if(peers_, [](const auto& entry) { return !entry.second.greeted; });
  if (silent == peers_.end()) return std::nullopt;
  return silent->first;
}

Peer PeerTable::remove(Id id) {
  auto node = peers_.extract(id);
  Peer peer = std::move(node.mapped());
  if (!peer.routing_id.empty()) by_routing_id_.erase(peer.routing_id);
  return peer;
}

}  // namespace k3::ipc
