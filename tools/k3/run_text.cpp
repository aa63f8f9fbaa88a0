#include "tools/k3/run_text.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>
#include <variant>

#include "tools/k3/terminal.h"

namespace k3::cli {
namespace {

constexpr std::chrono::milliseconds kLastDecodeLimit{2000};

}  // namespace

Result<std::string> TextStream::push(std::int32_t id) {
  if (!has_vocabulary_) {
    K3_TRY(print_now(fmt::format("{}{}", first_ ? "" : " ", id)));
    first_ = false;
    return std::string();
  }
  undecoded_.push_back(id);
  K3_ASSIGN(ipc::Message answer,
            link_.ask(Stage::kTokenizer, ipc::Decode{undecoded_, pending_, false}));
  auto* decoded = std::get_if<ipc::Decoded>(&answer);
  if (!decoded) return fail(ErrorCode::kFailed, "tokenizer answered Decode with another message");
  return take(std::move(*decoded));
}

Status TextStream::finish() {
  if (has_vocabulary_ && (!undecoded_.empty() || !pending_.empty())) {
    // The run is over, so a tokenizer that is away is not waited for.
    Result<ipc::Message> answer = link_.ask_briefly(
        Stage::kTokenizer, ipc::Decode{undecoded_, pending_, true}, kLastDecodeLimit);
    if (answer) {
      if (auto* decoded = std::get_if<ipc::Decoded>(&*answer)) K3_TRY(take(std::move(*decoded)));
    }
  }
  return print_now("\n");
}

std::optional<std::string> TextStream::text() const {
  if (!has_vocabulary_) return std::nullopt;
  return text_;
}

Result<std::string> TextStream::take(ipc::Decoded decoded) {
  undecoded_.clear();
  pending_ = std::move(decoded.pending);
  text_ += decoded.text;
  K3_TRY(print_now(decoded.text));
  return std::move(decoded.text);
}

}  // namespace k3::cli
