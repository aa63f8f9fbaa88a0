// The k3-tokenizer process behind its flags: vocabulary, encoder, server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "common/base/result.h"
#include "common/ipc/event_loop.h"
#include "common/ipc/messages.h"
#include "common/ipc/server.h"
#include "services/tokenizer/encoder.h"
#include "services/tokenizer/vocabulary.h"

namespace k3::tokenizer {

// The most text one request encodes. Even malformed text, every byte of it becoming the three of
// U+FFFD and each of those an id, then answers within ipc::kMaxFrameBytes.
inline constexpr std::size_t kMaxTextBytes = std::size_t{16} << 20;

// Serves one checkpoint's vocabulary in `run_dir` for as long as it lives. All on the loop's
// thread.
class TokenizerService {
 public:
  struct Options {
    std::filesystem::path run_dir;
    std::filesystem::path model;  // checkpoint directory
  };

  // Reads the vocabulary, if the checkpoint has one, and binds the endpoint. `loop` outlives the
  // service.
  static Result<std::unique_ptr<TokenizerService>> create(ipc::EventLoop& loop,
                                                          const Options& options);

 private:
  explicit TokenizerService(std::optional<Vocabulary> vocabulary);

  void on_message(ipc::Server::ClientId client, const ipc::Envelope& envelope);
  Result<ipc::Message> answer(const ipc::Message& request);
  ipc::TokenizerDescription describe() const;
  Result<ipc::Encoded> encode(const std::vector<ipc::Segment>& segments);
  Result<ipc::Decoded> decode(const ipc::Decode& request);
  ipc::Stats stats() const;

  std::optional<Vocabulary> vocabulary_;
  std::optional<Encoder> encoder_;  // when there is a vocabulary
  std::uint64_t requests_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t ids_encoded_ = 0;
  std::uint64_t ids_decoded_ = 0;
  std::unique_ptr<ipc::Server> server_;
};

}  // namespace k3::tokenizer
