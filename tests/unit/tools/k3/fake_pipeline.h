// Four services without a model behind them, in threads of the test, that die when told to.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/log.h"
#include "common/ipc/event_loop.h"
#include "common/ipc/messages.h"
#include "common/ipc/server.h"
#include "tests/unit/support/temp_dir.h"

namespace k3::test {

// Log lines go to stderr, as in every binary; the tests look at stdout.
inline const bool kLogsToStderr = start_logging("test", "warn").has_value();

inline constexpr std::uint32_t kFakeVocab = 256;  // an id is a byte
inline constexpr const char* kFakeFingerprint = "00112233445566778899aabbccddeeff";

// The greedy continuation of the fake model: depends on every id before it.
inline std::int32_t fake_next_id(const std::vector<std::int32_t>& ids) {
  std::uint32_t sum = 7;
  for (const std::int32_t id : ids) sum = sum * 31 + static_cast<std::uint32_t>(id);
  return static_cast<std::int32_t>(97 + sum % 26);
}

// What the fake model generates after `prompt`.
inline std::vector<std::int32_t> fake_ids(std::vector<std::int32_t> prompt, std::size_t count) {
  std::vector<std::int32_t> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(fake_next_id(prompt));
    prompt.push_back(out.back());
  }
  return out;
}

// Row of logits at `position`; the fake model's rows differ by position only.
inline std::vector<float> fake_logits(std::uint32_t position) {
  std::vector<float> row(kFakeVocab);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(position * 1000 + i);
  return row;
}

// One service in a thread of its own, started again when a client stops it. Handlers run there.
class FakeService {
 public:
  using Client = ipc::Server::ClientId;
  using Handler = std::function<void(FakeService&, Client, const ipc::Envelope&)>;

  FakeService(std::filesystem::path run_dir, std::string name, std::string fingerprint,
              Handler handler, std::function<ipc::Stats()> stats)
      : run_dir_(std::move(run_dir)),
        name_(std::move(name)),
        fingerprint_(std::move(fingerprint)),
        handler_(std::move(handler)),
        stats_(std::move(stats)),
        thread_([this] { run(); }) {}
  ~FakeService() {
    stopping_ = true;
    thread_.join();
  }

  // In a handler.
  void reply(Client client, const ipc::Message& message, std::uint64_t in_reply_to = 0) {
    server_->send(client, message, in_reply_to);
  }

  // Closes everything and binds again: to a client this is a death and a restart.
  void restart() { restarting_ = true; }

 private:
  void run() {
    while (!stopping_) {
      ipc::EventLoop loop;
      auto bound = ipc::Server::bind(loop, run_dir_, {name_, fingerprint_, {}},
                                     {[this](Client client, const ipc::Envelope& envelope) {
                                        if (!restarting_) handler_(*this, client, envelope);
                                      },
                                      [](Client) {}, stats_});
      ASSERT_TRUE(bound) << bound.error().message;
      server_ = std::move(*bound);
      restarting_ = false;
      while (!stopping_ && !restarting_ && !loop.stopped())
        loop.run_once(std::chrono::milliseconds(5));
      server_.reset();
    }
  }

  std::filesystem::path run_dir_;
  std::string name_;
  std::string fingerprint_;
  Handler handler_;
  std::function<ipc::Stats()> stats_;
  std::unique_ptr<ipc::Server> server_;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> restarting_ = false;
  std::thread thread_;  // last: starts when all else is ready
};

// All four, with a compute worker that generates fake_ids().
class FakePipeline {
 public:
  // Set before the first request.
  struct Behaviour {
    bool has_vocabulary = true;
    std::vector<std::int32_t> stop_ids = {};  // of the tokenizer
    // The worker dies after having sent this many tokens in all; one entry a death.
    std::vector<std::uint32_t> compute_dies_after = {};
    bool dies_before_finished = false;  // the first Finished is replaced by a death
    // The tokenizer dies instead of answering these requests (counted from 1).
    std::vector<std::uint32_t> tokenizer_dies_at = {};
    // Answers Generate when it has a message; with kUnavailable once, as a worker that is stopping.
    Error refusal = {};
    std::uint32_t fails_after = 0;          // a read error follows this many tokens; 0: never
    bool never_ends = false;                // after one token it only waits for Cancel
    std::vector<std::int32_t> script = {};  // ids to generate instead of fake_ids(), by index
  };

  FakePipeline() : FakePipeline(Behaviour{}) {}
  explicit FakePipeline(Behaviour behaviour) : behaviour_(std::move(behaviour)) {
    start("tokenizer", "",
          [this](auto& self, auto client, auto& envelope) { tokenizer(self, client, envelope); });
    start("trunk", kFakeFingerprint, [](auto& self, auto client, auto& envelope) {
      if (!std::holds_alternative<ipc::DescribeTrunk>(envelope.body)) return;
      self.reply(client, ipc::TrunkDescription{"{}", 7, 10, 9, 4, 4000, 10000},
                 envelope.header.sequence);
    });
    start("experts", kFakeFingerprint, [](auto& self, auto client, auto& envelope) {
      if (!std::holds_alternative<ipc::DescribeExperts>(envelope.body)) return;
      self.reply(client, ipc::ExpertsDescription{7, 32, 6, 500, 3000}, envelope.header.sequence);
    });
    start("compute", kFakeFingerprint,
          [this](auto& self, auto client, auto& envelope) { compute(self, client, envelope); });
  }

  const std::filesystem::path& run_dir() const { return dir_.path(); }
  FakeService& service(const std::string& name) { return *services_.at(name); }
  // All Generate requests so far.
  std::vector<ipc::Generate> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  bool cancelled() const { return cancelled_; }

 private:
  void start(const std::string& name, const std::string& fingerprint,
             FakeService::Handler handler) {
    services_[name] = std::make_unique<FakeService>(dir_.path(), name, fingerprint,
                                                    std::move(handler), [this] { return stats(); });
  }

  // Counters that began before the test and grow with every token.
  ipc::Stats stats() {
    const std::uint64_t n = tokens_sent_;
    return {{{"bytes_read", 1000 + 100 * n},
             {"hits", 10 + n},
             {"prefetched_hits", 20 + 2 * n},
             {"misses", 30 + 3 * n}}};
  }

  void tokenizer(FakeService& self, FakeService::Client client, const ipc::Envelope& envelope) {
    ++tokenizer_requests_;
    for (const std::uint32_t at : behaviour_.tokenizer_dies_at) {
      if (at == tokenizer_requests_) return self.restart();
    }
    const std::uint64_t sequence = envelope.header.sequence;
    if (std::holds_alternative<ipc::DescribeTokenizer>(envelope.body)) {
      self.reply(
          client,
          ipc::TokenizerDescription{behaviour_.has_vocabulary, kFakeVocab, behaviour_.stop_ids},
          sequence);
    } else if (const auto* encode = std::get_if<ipc::Encode>(&envelope.body)) {
      ipc::Encoded encoded;
      for (const ipc::Segment& segment : encode->segments) {
        for (const char byte : segment.text)
          encoded.ids.push_back(static_cast<unsigned char>(byte));
      }
      self.reply(client, encoded, sequence);
    } else if (const auto* chat = std::get_if<ipc::EncodeChat>(&envelope.body)) {
      ipc::Encoded encoded{{1}};
      for (const char byte : chat->user_text)
        encoded.ids.push_back(static_cast<unsigned char>(byte));
      encoded.ids.push_back(chat->thinking ? 2 : 3);
      self.reply(client, encoded, sequence);
    } else if (const auto* decode = std::get_if<ipc::Decode>(&envelope.body)) {
      self.reply(client, decoded(*decode), sequence);
    }
  }

  // Bytes to text, the tail of an unfinished character held back.
  static ipc::Decoded decoded(const ipc::Decode& request) {
    std::string bytes = request.pending;
    for (const std::int32_t id : request.ids) bytes.push_back(static_cast<char>(id));
    std::size_t begin = bytes.size();  // of the last character
    while (begin > 0 && (bytes[begin - 1] & 0xC0) == 0x80) --begin;
    if (begin > 0) --begin;
    const auto lead = static_cast<unsigned char>(begin < bytes.size() ? bytes[begin] : 0);
    const std::size_t needs = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (bytes.size() - begin >= needs || request.last) return {bytes, ""};
    return {bytes.substr(0, begin), bytes.substr(begin)};
  }

  void compute(FakeService& self, FakeService::Client client, const ipc::Envelope& envelope) {
    const std::uint64_t sequence = envelope.header.sequence;
    if (std::holds_alternative<ipc::DescribeCompute>(envelope.body)) {
      self.reply(client, ipc::ComputeDescription{2, 7, kFakeVocab, "avx2", 2, 12345}, sequence);
    } else if (const auto* generate = std::get_if<ipc::Generate>(&envelope.body)) {
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(*generate);
      }
      run(self, client, *generate, sequence);
    } else if (const auto* cancel = std::get_if<ipc::Cancel>(&envelope.body)) {
      cancelled_ = true;
      self.reply(client, ipc::Finished{cancel->request, ipc::FinishReason::kCancelled, {}});
    }
  }

  void run(FakeService& self, FakeService::Client client, const ipc::Generate& request,
           std::uint64_t sequence) {
    if (!behaviour_.refusal.message.empty()) {
      const Error refusal = behaviour_.refusal;
      self.reply(client, ipc::ErrorReply{refusal}, sequence);
      if (refusal.code != ErrorCode::kUnavailable) return;
      behaviour_.refusal = {};
      return self.restart();
    }
    std::vector<std::int32_t> ids = request.prompt_ids;
    const auto prompt = static_cast<std::uint32_t>(ids.size());
    self.reply(client, ipc::Progress{request.request, prompt, prompt});
    if (request.logits == ipc::LogitsWanted::kAll) {
      for (std::uint32_t p = 0; p + 1 < prompt; ++p) send_logits(self, client, request, p);
    }
    for (std::uint32_t index = 0; index < request.max_tokens; ++index) {
      const auto position = static_cast<std::uint32_t>(ids.size());
      if (request.logits != ipc::LogitsWanted::kNone) {
        send_logits(self, client, request, position - 1);
      }
      const std::int32_t id = next_id(ids);
      ids.push_back(id);
      self.reply(client, ipc::Token{request.request, index, position, id, {3000, 1000, 500}});
      ++tokens_sent_;
      if (deaths_ < behaviour_.compute_dies_after.size() &&
          tokens_sent_ >= behaviour_.compute_dies_after[deaths_]) {
        ++deaths_;
        return self.restart();
      }
      if (index + 1 == behaviour_.fails_after) {
        return self.reply(client, ipc::ErrorReply{{ErrorCode::kWeights, "layer 3 expert 17: bad"}},
                          sequence);
      }
      if (behaviour_.never_ends) return;
      for (const std::int32_t stop : request.stop_ids) {
        if (id == stop) return finish(self, client, request, ipc::FinishReason::kStop);
      }
    }
    finish(self, client, request, ipc::FinishReason::kLength);
  }

  std::int32_t next_id(const std::vector<std::int32_t>& ids) const {
    if (behaviour_.script.empty()) return fake_next_id(ids);
    return behaviour_.script[ids.size() - requests_.front().prompt_ids.size()];
  }

  void finish(FakeService& self, FakeService::Client client, const ipc::Generate& request,
              ipc::FinishReason reason) {
    if (std::exchange(behaviour_.dies_before_finished, false)) return self.restart();
    self.reply(client, ipc::Finished{request.request, reason, {9000, 4000, 2000}});
  }

  static void send_logits(FakeService& self, FakeService::Client client,
                          const ipc::Generate& request, std::uint32_t position) {
    self.reply(client, ipc::Logits{request.request, position, fake_logits(position)});
  }

  TempDir dir_;
  Behaviour behaviour_;
  std::uint32_t tokenizer_requests_ = 0;
  mutable std::mutex mutex_;
  std::vector<ipc::Generate> requests_;
  std::atomic<std::uint32_t> tokens_sent_ = 0;
  std::size_t deaths_ = 0;
  std::atomic<bool> cancelled_ = false;
  std::map<std::string, std::unique_ptr<FakeService>>
      services_;  // last: their threads use the rest
};

}  // namespace k3::test
