#include "tools/k3/run_text.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <utility>
#include <variant>

namespace k3::cli {
namespace {

constexpr std::chrono::milliseconds kLastDecodeLimit{2000};

void print_now(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

Result<std::string> TextStream::push(std::int32_t id) {
  if (!has_vocabulary_) {
    print_now(fmt::format("{}{}", first_ ? "" : " ", id));
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

void TextStream::finish() {
  if (has_vocabulary_ && (!undecoded_.empty() || !pending_.empty())) {
    // The run is over, so a tokenizer that is away is not waited for.
    Result<ipc::Message> answer = link_.ask_briefly(
        Stage::kTokenizer, ipc::Decode{undecoded_, pending_, true}, kLastDecodeLimit);
    if (answer) {
      if (auto* decoded = std::get_if<ipc::Decoded>(&*answer)) take(std::move(*decoded));
    }
  }
  print_now("\n");
}

std::optional<std::string> TextStream::text() const {
  if (!has_vocabulary_) return std::nullopt;
  return text_;
}

std::string TextStream::take(ipc::Decoded decoded) {
  undecoded_.clear();
  pending_ = std::move(decoded.pending);
  print_now(decoded.text);
  text_ += decoded.text;
  return std::move(decoded.text);
}

}  // namespace k3::cli
