@0xc32c647a01fde8d2;
# Text to ids and back. Requests carry all their state, so a restarted tokenizer just answers again.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("k3::proto::tokenizer");

struct Description {
  hasVocabulary @0 :Bool;    # false: the checkpoint carries none; encode and decode are refused
  vocab @1 :UInt32;          # ids 0..vocab-1, special tokens included
  stopIds @2 :List(Int32);   # ids that end a reply: <|end_of_msg|> and [EOS]
}

# Segments are encoded one by one and the ids concatenated.
struct Encode {
  segments @0 :List(Segment);
  struct Segment {
    text @0 :Text;
    allowSpecial @1 :Bool;   # false for all text that comes from a user
  }
}

# One user turn in the chat format, followed by the opening of the assistant's reply.
struct EncodeChat {
  userText @0 :Text;
  thinking @1 :Bool;
}

struct Encoded {
  ids @0 :List(Int32);
}

# Ids to text. `pending` are the bytes of an unfinished character returned by the previous call;
# `last` flushes them.
struct Decode {
  ids @0 :List(Int32);
  pending @1 :Data;
  last @2 :Bool;
}

struct Decoded {
  text @0 :Text;
  pending @1 :Data;          # at most 3 bytes
}
