@0xe94388406062de64;
# The one frame that travels on every ZeroMQ socket. Rules: only add fields, never renumber; an
# incompatible change raises protocolMajor. See README.md for who sends what.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("k3::proto");

using Control = import "control.capnp";
using Trunk = import "trunk.capnp";
using Experts = import "experts.capnp";
using Compute = import "compute.capnp";
using Tokenizer = import "tokenizer.capnp";

struct Envelope {
  protocolMajor @0 :UInt16;
  protocolMinor @1 :UInt16;
  sender @2 :Text;           # role of the sending process, for example "k3-trunk"
  incarnation @3 :UInt64;    # random, new for every process start
  sequence @4 :UInt64;       # counts from 1 per sender and connection
  inReplyTo @5 :UInt64;      # sequence of the message answered; 0 when unasked
  traceId @6 :UInt64;        # 0 when the message belongs to no token
  monotonicNs @7 :UInt64;    # CLOCK_MONOTONIC of the sender

  body :union {
    hello @8 :Control.Hello;
    welcome @9 :Control.Welcome;
    error @10 :Control.ErrorReply;
    statsRequest @11 :Void;
    stats @12 :Control.Stats;
    stop @13 :Void;
    setLogLevel @14 :Text;

    describeTrunk @15 :Void;
    trunkDescription @16 :Trunk.Description;
    subscribe @17 :Trunk.Subscribe;
    unitReady @18 :Trunk.UnitReady;
    unitRelease @19 :Trunk.UnitRelease;
    unitFailed @20 :Trunk.UnitFailed;
    rowsRequest @21 :Trunk.RowsRequest;
    rows @22 :Trunk.Rows;

    describeExperts @23 :Void;
    expertsDescription @24 :Experts.Description;
    fetch @25 :Experts.Fetch;
    arrived @26 :Experts.Arrived;
    expertFailed @27 :Experts.ExpertFailed;
    batchRelease @28 :Experts.BatchRelease;
    hint @29 :Experts.Hint;

    describeCompute @30 :Void;
    computeDescription @31 :Compute.Description;
    generate @32 :Compute.Generate;
    cancel @33 :Compute.Cancel;
    progress @34 :Compute.Progress;
    token @35 :Compute.Token;
    logits @36 :Compute.Logits;
    finished @37 :Compute.Finished;

    describeTokenizer @38 :Void;
    tokenizerDescription @39 :Tokenizer.Description;
    encode @40 :Tokenizer.Encode;
    encodeChat @41 :Tokenizer.EncodeChat;
    encoded @42 :Tokenizer.Encoded;
    decode @43 :Tokenizer.Decode;
    decoded @44 :Tokenizer.Decoded;

    setSpans @45 :Bool;        # records spans from now on, or no longer
    takeSpans @46 :Void;
    spans @47 :Control.Spans;
  }
}
