@0xc3a5d0be61f7294e;
# Frames of a recording of the compute stage (docs/formats.md). fp32 values are stored as their bits.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("k3::proto::recording");

struct Start {
  fingerprint @0 :Text;      # of the model
  config @1 :Text;           # its config.json, verbatim
  layers @2 :UInt32;         # layers run
  modelLayers @3 :UInt32;    # layers of the whole model
  mlaNormEps @4 :UInt32;     # bits
  isa @5 :Text;              # kernel table of the recording
  threads @6 :UInt32;
}

struct Row {
  session @0 :UInt32;
  position @1 :UInt32;
  id @2 :Int32;
  logitsWanted @3 :Bool;
}

struct Pass {
  rows @0 :List(Row);
}

struct Layer {
  layer @0 :UInt32;
  activations @1 :List(UInt32);  # bits of [rows][hidden], after the layer
  experts @2 :List(UInt32);      # [rows][top k] in the order of summing; empty in a dense layer
  weights @3 :List(UInt32);      # bits, one for each of experts
}

struct Done {
  logits @0 :List(UInt32);       # bits of [rows that want them][vocab]
  chosen @1 :List(Int32);        # for each such row the largest logit's id, -1 where one is NaN
}

struct End {
  full @0 :Bool;             # the bound on its size ended the recording
}

struct Frame {
  union {
    start @0 :Start;
    pass @1 :Pass;
    layer @2 :Layer;
    done @3 :Done;
    end @4 :End;
  }
}
