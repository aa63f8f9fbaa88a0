#include "common/ipc/peer_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace k3::ipc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(PeerTable, FindsAPeerByItsRoutingIdUntilItIsRemoved) {
  PeerTable table;
  const PeerTable::Id first = table.add(UniqueFd());
  const PeerTable::Id second = table.add(UniqueFd());
  EXPECT_THAT(table.unidentified(), ElementsAre(first, second));
  ASSERT_TRUE(table.identify(second, new_connection_id()));
  EXPECT_THAT(table.unidentified(), ElementsAre(first));
  const std::string routing_id = table.at(second).routing_id;
  EXPECT_EQ(table.with_routing_id(routing_id), second);
  EXPECT_EQ(table.remove(second).routing_id, routing_id);
  EXPECT_EQ(table.with_routing_id(routing_id), std::nullopt);
  EXPECT_EQ(table.find(second), nullptr);
  EXPECT_EQ(table.size(), 1u);
  EXPECT_GT(table.add(UniqueFd()), second);
}

TEST(PeerTable, AnIdBelongsToOnePeerAndAPeerHasOneId) {
  PeerTable table;
  const PeerTable::Id first = table.add(UniqueFd());
  const PeerTable::Id second = table.add(UniqueFd());
  const ConnectionId id = new_connection_id();
  ASSERT_TRUE(table.identify(first, id));
  EXPECT_THAT(table.identify(second, id).error().message, HasSubstr("in use by client 1"));
  EXPECT_THAT(table.identify(first, new_connection_id()).error().message, HasSubstr("second"));
  table.remove(second);
  EXPECT_TRUE(table.with_routing_id(table.at(first).routing_id));
}

TEST(PeerTable, TheOldestSilentPeerIsTheOneToMakeRoom) {
  PeerTable table;
  EXPECT_EQ(table.oldest_silent(), std::nullopt);
  const PeerTable::Id first = table.add(UniqueFd());
  const PeerTable::Id second = table.add(UniqueFd());
  const PeerTable::Id third = table.add(UniqueFd());
  table.at(first).greeted = true;
  EXPECT_EQ(table.oldest_silent(), second);
  ASSERT_TRUE(table.identify(second, new_connection_id()));  // an id alone says nothing yet
  EXPECT_EQ(table.oldest_silent(), second);
  table.at(second).greeted = table.at(third).greeted = true;
  EXPECT_EQ(table.oldest_silent(), std::nullopt);
}

}  // namespace
}  // namespace k3::ipc
