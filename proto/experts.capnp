@0xdd18d0a64db0032d;
# The routed experts. Any service that speaks these messages can stand in for k3-experts.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("k3::proto::experts");
using Control = import "control.capnp";

struct Description {
  layers @0 :UInt32;
  experts @1 :UInt32;      # per MoE layer
  slots @2 :UInt32;        # most experts that can be leased at once
  expertBytes @3 :UInt64;
  arenaBytes @4 :UInt64;
}

# Leases `experts` of `layer` under the client's batch number (unique per connection). Refused when
# the list holds more experts than the service has slots.
struct Fetch {
  batch @0 :UInt64;
  layer @1 :UInt32;
  experts @2 :List(UInt32);
  urgency @3 :UInt8;       # 0 = needed now; larger may wait
}

enum Source {
  hit @0;                  # resident, read for an earlier fetch
  prefetched @1;           # resident or under way because of a hint
  miss @2;
}

# The six tensors of one expert, in the order w1 packed, w1 scales, w2 packed, w2 scales,
# w3 packed, w3 scales.
struct Expert {
  expert @0 :UInt32;
  source @1 :Source;
  parts @2 :List(Control.Ref);
}

# One or more experts of a batch, in any order, each exactly once per batch.
struct Arrived {
  batch @0 :UInt64;
  experts @1 :List(Expert);
}

# This expert cannot be delivered. The others of the batch still arrive.
struct ExpertFailed {
  batch @0 :UInt64;
  layer @1 :UInt32;
  expert @2 :UInt32;
  error @3 :Control.ErrorReply;
}

# Ends every lease of the batch, also those that have not arrived yet.
struct BatchRelease {
  batch @0 :UInt64;
}

# Reads ahead without a lease and without an answer.
struct Hint {
  layer @0 :UInt32;
  experts @1 :List(UInt32);
}
