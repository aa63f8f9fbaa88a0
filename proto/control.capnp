@0xbbbe69b6c1bb4359;
# What every service understands.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("k3::proto::control");

# First message of a connection. The lifeline (a Unix socket beside the ZeroMQ endpoint) was opened
# before it with the same connection id.
struct Hello {
  role @0 :Text;           # "compute", "cli", ...
  fingerprint @1 :Text;    # the model the client expects; empty accepts any
}

struct Welcome {
  service @0 :Text;        # "k3-experts", ...
  pid @1 :UInt32;
  fingerprint @2 :Text;    # the model served; empty where the service has none
}

# Answers a request that cannot be carried out, a malformed frame included.
struct ErrorReply {
  code @0 :Int32;          # ErrorCode of common/base/result.h
  message @1 :Text;        # names what and where
}

# Counters since the process started. Names are stable and documented in the service's README.
struct Stats {
  counters @0 :List(Counter);
  struct Counter {
    name @0 :Text;
    value @1 :UInt64;
  }
}

# A span of a shared-memory region whose descriptor travelled over the lifeline.
struct Ref {
  region @0 :UInt32;
  generation @1 :UInt64;   # of the region's owner; an old one is refused by the consumer
  offset @2 :UInt64;       # bytes
  length @3 :UInt64;       # bytes
}

# What a process was doing when: answers takeSpans with all that was recorded since the last one.
struct Spans {
  names @0 :List(Text);
  spans @1 :List(Span);    # in the order they ended
  dropped @2 :UInt64;      # older ones that found no room since the last takeSpans
  struct Span {
    name @0 :UInt16;       # index in names
    thread @1 :UInt32;     # the kernel's number of the thread; 0: none, such spans may overlap
    argument @2 :UInt32;   # what the name calls for: a layer, a count
    beginNs @3 :UInt64;    # CLOCK_MONOTONIC
    endNs @4 :UInt64;
    traceId @5 :UInt64;    # of the work it belongs to, as in the envelope
  }
}
