// Token ids to text, in one go or a few ids at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "services/tokenizer/vocabulary.h"

namespace k3::tokenizer {

// The most bytes an unfinished character has.
inline constexpr std::size_t kMaxPendingBytes = 3;

// The most bytes one call decodes; ids of long tokens make far more text than they take room.
inline constexpr std::size_t kMaxDecodedBytes = std::size_t{16} << 20;

struct DecodedText {
  std::string text;     // valid UTF-8, whole characters
  std::string pending;  // the bytes of an unfinished character behind it
};

// Decodes `pending`, as the previous call returned it, followed by `ids`. Malformed parts become
// U+FFFD, one a maximal ill-formed subpart; with `last` an unfinished character at the end does
// too. kUsage: an id outside the vocabulary (named with its size), a longer `pending`, too much
// text. Any thread.
Result<DecodedText> decode_ids(const Vocabulary& vocabulary, std::span<const std::int32_t> ids,
                               std::string_view pending, bool last);

}  // namespace k3::tokenizer
