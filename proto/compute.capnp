@0xb4e550e7d0c09530;
# Generation: prompt ids in, progress, tokens and logits out.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("k3::proto::compute");

struct Description {
  layers @0 :UInt32;         # layers run
  modelLayers @1 :UInt32;    # layers of the released model
  vocab @2 :UInt32;
  isa @3 :Text;              # kernel table in use
  threads @4 :UInt32;
  plannedBytes @5 :UInt64;   # weights, state and activations this worker may hold
}

enum LogitsWanted {
  none @0;
  last @1;                   # of every position a token is chosen from
  all @2;                    # of every position
}

# Greedy generation of up to maxTokens ids after promptIds. `request` is unique per connection.
struct Generate {
  request @0 :UInt64;
  promptIds @1 :List(Int32);
  maxTokens @2 :UInt32;
  stopIds @3 :List(Int32);
  logits @4 :LogitsWanted;
  recompute @5 :Bool;        # carry no state: run the whole prefix again for every token
}

struct Cancel {
  request @0 :UInt64;
}

struct Progress {
  request @0 :UInt64;
  done @1 :UInt32;           # prompt positions finished
  total @2 :UInt32;
}

# Where the time of one pass went, in nanoseconds of wall clock. What the last three leave of the
# total is arithmetic.
struct Timings {
  total @0 :UInt64;
  waitTrunk @1 :UInt64;      # until a unit or embedding rows had come
  waitExperts @2 :UInt64;    # until an expert had come
  messaging @3 :UInt64;      # all other dealings with the services and the client: asking,
                             # releasing, finding the bytes, looking for messages between layers
}

struct Token {
  request @0 :UInt64;
  index @1 :UInt32;          # 0 for the first generated token
  position @2 :UInt32;       # in the whole sequence
  id @3 :Int32;
  timings @4 :Timings;       # of the pass (or passes) that chose it
}

struct Logits {
  request @0 :UInt64;
  position @1 :UInt32;
  values @2 :List(Float32);  # [vocab]
}

enum FinishReason {
  length @0;                 # maxTokens reached
  stop @1;                   # a stop id was generated (it is the last token sent)
  cancelled @2;
}

struct Finished {
  request @0 :UInt64;
  reason @1 :FinishReason;
  prefill @2 :Timings;
}
