#include "services/tokenizer/tokenizer_service.h"

#include <spdlog/spdlog.h>

#include <system_error>
#include <utility>
#include <variant>

#include "common/observe/spans.h"
#include "services/tokenizer/chat.h"
#include "services/tokenizer/decoder.h"

namespace k3::tokenizer {

Result<std::unique_ptr<TokenizerService>> TokenizerService::create(ipc::EventLoop& loop,
                                                                   const Options& options) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(options.model, ignored)) {
    return fail(ErrorCode::kUsage, "{}: no such checkpoint directory", options.model.string());
  }
  K3_ASSIGN(std::optional<Vocabulary> vocabulary, Vocabulary::load(options.model));
  std::unique_ptr<TokenizerService> service(new TokenizerService(std::move(vocabulary)));
  ipc::Server::Callbacks callbacks;
  callbacks.on_message = [self = service.get()](auto client, const ipc::Envelope& envelope) {
    self->on_message(client, envelope);
  };
  callbacks.on_disconnect = [](ipc::Server::ClientId) {};
  callbacks.stats = [self = service.get()] { return self->stats(); };
  K3_ASSIGN(service->server_,
            ipc::Server::bind(loop, options.run_dir, {"tokenizer", "", {}}, std::move(callbacks)));
  if (service->vocabulary_) {
    spdlog::info("ready vocab={} ranks={}", service->vocabulary_->size(),
                 service->vocabulary_->ranks());
  } else {
    spdlog::warn("ready vocab=none model={}", options.model.string());
  }
  return service;
}

TokenizerService::TokenizerService(std::optional<Vocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)) {
  if (vocabulary_) encoder_.emplace(*vocabulary_);
}

void TokenizerService::on_message(ipc::Server::ClientId client, const ipc::Envelope& envelope) {
  ++requests_;
  spans::set_trace_id(envelope.header.trace_id);
  Result<ipc::Message> reply = answer(envelope.body);
  if (!reply) {
    ++refused_;
    reply = ipc::ErrorReply{std::move(reply.error())};
  }
  server_->send(client, *reply, envelope.header.sequence, envelope.header.trace_id);
}

Result<ipc::Message> TokenizerService::answer(const ipc::Message& request) {
  if (std::holds_alternative<ipc::DescribeTokenizer>(request)) return describe();
  const auto* text = std::get_if<ipc::Encode>(&request);
  const auto* chat = std::get_if<ipc::EncodeChat>(&request);
  const auto* ids = std::get_if<ipc::Decode>(&request);
  if (text == nullptr && chat == nullptr && ids == nullptr) {
    return fail(ErrorCode::kUsage, "k3-tokenizer does not answer message number {}",
                request.index());
  }
  if (!vocabulary_) return fail(ErrorCode::kUsage, "the checkpoint has no vocabulary");
  if (text != nullptr) return encode(text->segments);
  if (chat != nullptr) return encode(render_user_turn(chat->user_text, chat->thinking));
  return decode(*ids);
}

ipc::TokenizerDescription TokenizerService::describe() const {
  if (!vocabulary_) return {};
  return {true, static_cast<std::uint32_t>(vocabulary_->size()), vocabulary_->stop_ids()};
}

Result<ipc::Encoded> TokenizerService::encode(const std::vector<ipc::Segment>& segments) {
  const spans::Scope span("encode");
  std::size_t bytes = 0;
  for (const ipc::Segment& segment : segments) bytes += segment.text.size();
  if (bytes > kMaxTextBytes) {
    return fail(ErrorCode::kUsage, "a text of {} bytes, the limit is {}", bytes, kMaxTextBytes);
  }
  ipc::Encoded encoded;
  for (const ipc::Segment& segment : segments) {
    encoder_->encode(segment.text, segment.allow_special, encoded.ids);
  }
  ids_encoded_ += encoded.ids.size();
  return encoded;
}

Result<ipc::Decoded> TokenizerService::decode(const ipc::Decode& request) {
  const spans::Scope span("decode", static_cast<std::uint32_t>(request.ids.size()));
  K3_ASSIGN(DecodedText decoded,
            decode_ids(*vocabulary_, request.ids, request.pending, request.last));
  ids_decoded_ += request.ids.size();
  return ipc::Decoded{std::move(decoded.text), std::move(decoded.pending)};
}

ipc::Stats TokenizerService::stats() const {
  return {{{"requests", requests_},
           {"refused", refused_},
           {"ids_encoded", ids_encoded_},
           {"ids_decoded", ids_decoded_}}};
}

}  // namespace k3::tokenizer
