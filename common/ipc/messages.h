// The messages of the pipeline as plain structs. The wire form is in proto/; codec.h converts.
// Every field is documented in the .capnp file of the same name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "common/base/result.h"

namespace k3::ipc {

// --- control ---
struct Hello {
  std::string role;
  std::string fingerprint;
};
struct Welcome {
  std::string service;
  std::uint32_t pid = 0;
  std::string fingerprint;
};
struct ErrorReply {
  Error error;
};
struct StatsRequest {};
struct Counter {
  std::string name;
  std::uint64_t value = 0;
};
struct Stats {
  std::vector<Counter> counters;
};
struct Stop {};
struct SetLogLevel {
  std::string level;
};
struct SetSpans {
  bool on = false;
};
struct TakeSpans {};
struct RecordedSpan {
  std::uint16_t name = 0;
  std::uint32_t thread = 0;
  std::uint32_t argument = 0;
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
  std::uint64_t trace_id = 0;
};
struct Spans {
  std::vector<std::string> names;
  std::vector<RecordedSpan> spans;
  std::uint64_t dropped = 0;
};
struct Ref {
  std::uint32_t region = 0;
  std::uint64_t generation = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// --- trunk ---
struct DescribeTrunk {};
struct TrunkDescription {
  std::string config;
  std::uint32_t layers = 0;
  std::uint32_t units = 0;
  std::uint32_t head_unit = 0;
  std::uint32_t slots = 0;
  std::uint64_t arena_bytes = 0;
  std::uint64_t pass_bytes = 0;
};
struct Subscribe {
  std::uint64_t pass = 0;
  std::uint32_t first_unit = 0;
  std::uint32_t last_unit = 0;
};
struct Block {
  std::uint32_t tensor = 0;
  std::uint32_t first_row = 0;
  std::uint32_t rows = 0;
  std::uint8_t encoding = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};
struct UnitReady {
  std::uint64_t pass = 0;
  std::uint32_t unit = 0;
  Ref ref;
  std::vector<Block> blocks;
};
struct UnitRelease {
  std::uint64_t pass = 0;
  std::uint32_t unit = 0;
};
struct UnitFailed {
  std::uint64_t pass = 0;
  std::uint32_t unit = 0;
  Error error;
};
struct RowsRequest {
  std::vector<std::int32_t> ids;
};
struct Rows {
  std::uint8_t encoding = 0;
  std::uint32_t row_bytes = 0;
  std::vector<std::byte> data;
};

// --- experts ---
struct DescribeExperts {};
struct ExpertsDescription {
  std::uint32_t layers = 0;
  std::uint32_t experts = 0;
  std::uint32_t slots = 0;
  std::uint64_t expert_bytes = 0;
  std::uint64_t arena_bytes = 0;
};
struct Fetch {
  std::uint64_t batch = 0;
  std::uint32_t layer = 0;
  std::vector<std::uint32_t> experts;
  std::uint8_t urgency = 0;
};
enum class ExpertOrigin : std::uint16_t { kHit = 0, kPrefetched = 1, kMiss = 2 };
struct ArrivedExpert {
  std::uint32_t expert = 0;
  ExpertOrigin source = ExpertOrigin::kMiss;
  std::vector<Ref> parts;
};
struct Arrived {
  std::uint64_t batch = 0;
  std::vector<ArrivedExpert> experts;
};
struct ExpertFailed {
  std::uint64_t batch = 0;
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
  Error error;
};
struct BatchRelease {
  std::uint64_t batch = 0;
};
struct Hint {
  std::uint32_t layer = 0;
  std::vector<std::uint32_t> experts;
};

// --- compute ---
struct DescribeCompute {};
struct ComputeDescription {
  std::uint32_t layers = 0;
  std::uint32_t model_layers = 0;
  std::uint32_t vocab = 0;
  std::string isa;
  std::uint32_t threads = 0;
  std::uint64_t planned_bytes = 0;
};
enum class LogitsWanted : std::uint16_t { kNone = 0, kLast = 1, kAll = 2 };
struct Generate {
  std::uint64_t request = 0;
  std::vector<std::int32_t> prompt_ids;
  std::uint32_t max_tokens = 0;
  std::vector<std::int32_t> stop_ids;
  LogitsWanted logits = LogitsWanted::kNone;
  bool recompute = false;
};
struct Cancel {
  std::uint64_t request = 0;
};
struct Progress {
  std::uint64_t request = 0;
  std::uint32_t done = 0;
  std::uint32_t total = 0;
};
struct Timings {
  std::uint64_t total_ns = 0;
  std::uint64_t wait_trunk_ns = 0;
  std::uint64_t wait_experts_ns = 0;
  std::uint64_t messaging_ns = 0;
};
struct Token {
  std::uint64_t request = 0;
  std::uint32_t index = 0;
  std::uint32_t position = 0;
  std::int32_t id = 0;
  Timings timings;
};
struct Logits {
  std::uint64_t request = 0;
  std::uint32_t position = 0;
  std::vector<float> values;
};
enum class FinishReason : std::uint16_t { kLength = 0, kStop = 1, kCancelled = 2 };
struct Finished {
  std::uint64_t request = 0;
  FinishReason reason = FinishReason::kLength;
  Timings prefill;
};

// --- tokenizer ---
struct DescribeTokenizer {};
struct TokenizerDescription {
  bool has_vocabulary = false;
  std::uint32_t vocab = 0;
  std::vector<std::int32_t> stop_ids;
};
struct Segment {
  std::string text;
  bool allow_special = false;
};
struct Encode {
  std::vector<Segment> segments;
};
struct EncodeChat {
  std::string user_text;
  bool thinking = true;
};
struct Encoded {
  std::vector<std::int32_t> ids;
};
struct Decode {
  std::vector<std::int32_t> ids;
  std::string pending;
  bool last = false;
};
struct Decoded {
  std::string text;
  std::string pending;
};

using Message =
    std::variant<Hello, Welcome, ErrorReply, StatsRequest, Stats, Stop, SetLogLevel, DescribeTrunk,
                 TrunkDescription, Subscribe, UnitReady, UnitRelease, UnitFailed, RowsRequest, Rows,
                 DescribeExperts, ExpertsDescription, Fetch, Arrived, ExpertFailed, BatchRelease,
                 Hint, DescribeCompute, ComputeDescription, Generate, Cancel, Progress, Token,
                 Logits, Finished, DescribeTokenizer, TokenizerDescription, Encode, EncodeChat,
                 Encoded, Decode, Decoded, SetSpans, TakeSpans, Spans>;

// Everything around a message body (proto/envelope.capnp).
struct Header {
  std::string sender;
  std::uint64_t incarnation = 0;
  std::uint64_t sequence = 0;
  std::uint64_t in_reply_to = 0;
  std::uint64_t trace_id = 0;
  std::uint64_t monotonic_ns = 0;
};

struct Envelope {
  Header header;
  Message body;
};

}  // namespace k3::ipc
