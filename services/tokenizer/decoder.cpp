#include "services/tokenizer/decoder.h"

#include "services/tokenizer/utf8.h"

namespace k3::tokenizer {

Result<DecodedText> decode_ids(const Vocabulary& vocabulary, std::span<const std::int32_t> ids,
                               std::string_view pending, bool last) {
  if (pending.size() > kMaxPendingBytes) {
    return fail(ErrorCode::kUsage, "{} pending bytes, at most {} are allowed", pending.size(),
                kMaxPendingBytes);
  }
  std::string bytes(pending);
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocabulary.size()) {
      return fail(ErrorCode::kUsage, "token id {} is not in 0..{}, the vocabulary of {} ids", id,
                  vocabulary.size() - 1, vocabulary.size());
    }
    bytes += vocabulary.bytes(id);
    if (bytes.size() > kMaxDecodedBytes) {
      return fail(ErrorCode::kUsage, "{} ids make more than {} bytes of text", ids.size(),
                  kMaxDecodedBytes);
    }
  }
  DecodedText decoded;
  decoded.text.reserve(bytes.size());
  for (std::string_view rest = bytes; !rest.empty();) {
    const Utf8Character character = read_utf8(rest);
    if (character.kind == Utf8Character::Kind::kValid) {
      decoded.text += rest.substr(0, character.bytes);
    } else if (character.kind == Utf8Character::Kind::kIncomplete && !last) {
      decoded.pending = rest;
    } else {
      decoded.text += kReplacement;
    }
    rest.remove_prefix(character.bytes);
  }
  return decoded;
}

}  // namespace k3::tokenizer
