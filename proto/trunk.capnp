@0xa53b5cd74dd91459;
# The weights used on every token, delivered unit by unit in the order of use.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("k3::proto::trunk");
using Control = import "control.capnp";

struct Description {
  config @0 :Text;         # config.json of the checkpoint, verbatim
  layers @1 :UInt32;       # layers served (fewer than the model's for a partial download)
  units @2 :UInt32;        # units of one full pass, output head included
  headUnit @3 :UInt32;     # first unit that belongs to the output head only
  slots @4 :UInt32;        # ring plus pinned units
  arenaBytes @5 :UInt64;
  passBytes @6 :UInt64;    # bytes of all units
}

# Asks for units firstUnit..lastUnit (inclusive) of one pass. Passes of a connection count up; a
# subscriber may ask for the next pass while one is under way.
struct Subscribe {
  pass @0 :UInt64;
  firstUnit @1 :UInt32;
  lastUnit @2 :UInt32;
}

# A run of rows of one trunk tensor inside a unit.
struct Block {
  tensor @0 :UInt32;       # index in the trunk order (common/checkpoint/trunk_order.h)
  firstRow @1 :UInt32;
  rows @2 :UInt32;
  encoding @3 :UInt8;      # TrunkEncoding
  offset @4 :UInt64;       # from the start of the unit
  length @5 :UInt64;
}

# The unit is sealed and leased to the subscriber until its UnitRelease.
struct UnitReady {
  pass @0 :UInt64;
  unit @1 :UInt32;
  ref @2 :Control.Ref;
  blocks @3 :List(Block);
}

struct UnitRelease {
  pass @0 :UInt64;
  unit @1 :UInt32;
}

# The unit cannot be delivered; the pass ends here.
struct UnitFailed {
  pass @0 :UInt64;
  unit @1 :UInt32;
  error @2 :Control.ErrorReply;
}

# Embedding rows by token id; answered by Rows or an error.
struct RowsRequest {
  ids @0 :List(Int32);
}

# Rows in the order asked, each rowBytes long, as stored in the checkpoint.
struct Rows {
  encoding @0 :UInt8;      # TrunkEncoding: raw F32 or BF16
  rowBytes @1 :UInt32;
  data @2 :Data;
}
