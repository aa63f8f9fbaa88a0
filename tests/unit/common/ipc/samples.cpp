#include "tests/unit/common/ipc/samples.h"

namespace k3::ipc::test {
namespace {

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

void add_control(std::vector<Sample>& out) {
  out.push_back({Hello{"compute", "00ff"}, R"(hello = (role = "compute", fingerprint = "00ff"))"});
  out.push_back({Welcome{"k3-trunk", 4711, "abcd"},
                 R"(welcome = (service = "k3-trunk", pid = 4711, fingerprint = "abcd"))"});
  out.push_back(
      {ErrorReply{{ErrorCode::kWeights, "shard 3"}}, R"(error = (code = 4, message = "shard 3"))"});
  out.push_back({StatsRequest{}, "statsRequest = void"});
  out.push_back({Stats{{{"hits", 1}, {"misses", 18446744073709551615u}}},
                 R"(stats = (counters = [(name = "hits", value = 1), )"
                 R"((name = "misses", value = 18446744073709551615)]))"});
  out.push_back({Stop{}, "stop = void"});
  out.push_back({SetLogLevel{"debug"}, R"(setLogLevel = "debug")"});
  out.push_back({SetSpans{true}, "setSpans = true"});
  out.push_back({TakeSpans{}, "takeSpans = void"});
  out.push_back({Spans{{"pass", "kda"}, {{1, 2, 3, 4, 5, 6}, {0, 0, 0, 7, 1ull << 40, 0}}, 9},
                 R"(spans = (names = ["pass", "kda"], spans = [)"
                 "(name = 1, thread = 2, argument = 3, beginNs = 4, endNs = 5, traceId = 6), "
                 "(name = 0, thread = 0, argument = 0, beginNs = 7, endNs = 1099511627776, "
                 "traceId = 0)], dropped = 9)"});
}

void add_trunk(std::vector<Sample>& out) {
  out.push_back({DescribeTrunk{}, "describeTrunk = void"});
  out.push_back({TrunkDescription{"{}", 93, 400, 390, 7, 1ull << 40, 107ull << 30},
                 R"(trunkDescription = (config = "{}", layers = 93, units = 400, headUnit = 390, )"
                 "slots = 7, arenaBytes = 1099511627776, passBytes = 114890375168)"});
  out.push_back({Subscribe{5, 6, 7}, "subscribe = (pass = 5, firstUnit = 6, lastUnit = 7)"});
  out.push_back({UnitReady{8, 9, {1, 2, 3, 4}, {{10, 11, 12, 1, 13, 14}, {15, 16, 17, 2, 18, 19}}},
                 "unitReady = (pass = 8, unit = 9, "
                 "ref = (region = 1, generation = 2, offset = 3, length = 4), blocks = ["
                 "(tensor = 10, firstRow = 11, rows = 12, encoding = 1, offset = 13, length = 14), "
                 "(tensor = 15, firstRow = 16, rows = 17, encoding = 2, offset = 18, length = 19)"
                 "])"});
  out.push_back({UnitRelease{20, 21}, "unitRelease = (pass = 20, unit = 21)"});
  out.push_back({UnitFailed{22, 23, {ErrorCode::kUnavailable, "gone"}},
                 R"(unitFailed = (pass = 22, unit = 23, error = (code = 100, message = "gone")))"});
  out.push_back({RowsRequest{{1, -2, 3}}, "rowsRequest = (ids = [1, -2, 3])"});
  out.push_back({Rows{1, 3, bytes({65, 66, 67, 68, 69, 70})},
                 R"(rows = (encoding = 1, rowBytes = 3, data = "ABCDEF"))"});
}

void add_experts(std::vector<Sample>& out) {
  out.push_back({DescribeExperts{}, "describeExperts = void"});
  out.push_back({ExpertsDescription{92, 896, 300, 18350080, 1ull << 33},
                 "expertsDescription = (layers = 92, experts = 896, slots = 300, "
                 "expertBytes = 18350080, arenaBytes = 8589934592)"});
  out.push_back({Fetch{1, 2, {3, 895}, 4},
                 "fetch = (batch = 1, layer = 2, experts = [3, 895], urgency = 4)"});
  out.push_back({Arrived{5,
                         {{6, ExpertOrigin::kHit, {{1, 2, 3, 4}, {5, 6, 7, 8}}},
                          {7, ExpertOrigin::kPrefetched, {{9, 10, 11, 12}}},
                          {8, ExpertOrigin::kMiss, {{13, 14, 15, 16}}}}},
                 "arrived = (batch = 5, experts = ["
                 "(expert = 6, source = hit, parts = ["
                 "(region = 1, generation = 2, offset = 3, length = 4), "
                 "(region = 5, generation = 6, offset = 7, length = 8)]), "
                 "(expert = 7, source = prefetched, parts = ["
                 "(region = 9, generation = 10, offset = 11, length = 12)]), "
                 "(expert = 8, source = miss, parts = ["
                 "(region = 13, generation = 14, offset = 15, length = 16)])])"});
  out.push_back({ExpertFailed{9, 10, 11, {ErrorCode::kUsage, "no"}},
                 "expertFailed = (batch = 9, layer = 10, expert = 11, "
                 R"(error = (code = 2, message = "no")))"});
  out.push_back({BatchRelease{12}, "batchRelease = (batch = 12)"});
  out.push_back({Hint{13, {14, 15}}, "hint = (layer = 13, experts = [14, 15])"});
}

void add_compute(std::vector<Sample>& out) {
  out.push_back({DescribeCompute{}, "describeCompute = void"});
  out.push_back({ComputeDescription{4, 93, 163840, "avx2", 2, 12345},
                 "computeDescription = (layers = 4, modelLayers = 93, vocab = 163840, "
                 R"(isa = "avx2", threads = 2, plannedBytes = 12345))"});
  out.push_back({Generate{1, {2, 3}, 4, {5}, LogitsWanted::kAll, true},
                 "generate = (request = 1, promptIds = [2, 3], maxTokens = 4, stopIds = [5], "
                 "logits = all, recompute = true)"});
  out.push_back({Cancel{6}, "cancel = (request = 6)"});
  out.push_back({Progress{7, 8, 9}, "progress = (request = 7, done = 8, total = 9)"});
  out.push_back({Token{1, 2, 3, -4, {5, 6, 7, 8}},
                 "token = (request = 1, index = 2, position = 3, id = -4, "
                 "timings = (total = 5, waitTrunk = 6, waitExperts = 7, messaging = 8))"});
  out.push_back({Logits{8, 9, {0.5f, -2.25f}},
                 "logits = (request = 8, position = 9, values = [0.5, -2.25])"});
  out.push_back({Finished{10, FinishReason::kCancelled, {11, 12, 13, 14}},
                 "finished = (request = 10, reason = cancelled, "
                 "prefill = (total = 11, waitTrunk = 12, waitExperts = 13, messaging = 14))"});
}

void add_tokenizer(std::vector<Sample>& out) {
  out.push_back({DescribeTokenizer{}, "describeTokenizer = void"});
  out.push_back({TokenizerDescription{true, 163840, {163586, 163585}},
                 "tokenizerDescription = (hasVocabulary = true, vocab = 163840, "
                 "stopIds = [163586, 163585])"});
  out.push_back({Encode{{{"a", true}, {"b", false}}},
                 R"(encode = (segments = [(text = "a", allowSpecial = true), )"
                 R"((text = "b", allowSpecial = false)]))"});
  out.push_back({EncodeChat{"hi", true}, R"(encodeChat = (userText = "hi", thinking = true))"});
  out.push_back({Encoded{{7, 8}}, "encoded = (ids = [7, 8])"});
  out.push_back({Decode{{9}, "\xe2\x82", true},
                 R"(decode = (ids = [9], pending = "\342\202", last = true))"});
  out.push_back({Decoded{"ok", "\xf0"}, R"(decoded = (text = "ok", pending = "\360"))"});
}

}  // namespace

std::vector<Sample> samples() {
  std::vector<Sample> out;
  add_control(out);
  add_trunk(out);
  add_experts(out);
  add_compute(out);
  add_tokenizer(out);
  return out;
}

Header sample_header() { return {"k3-test", 1, 2, 3, 4, 5}; }

}  // namespace k3::ipc::test
