// k3-tokenizer --bench: the speed of encoding and decoding, without server or client.
#pragma once

#include <filesystem>
#include <optional>

#include "common/base/result.h"

namespace k3::tokenizer {

struct BenchOptions {
  std::filesystem::path model;                // checkpoint directory
  std::filesystem::path text;                 // file to encode, at most kMaxDecodedBytes
  int repeat = 5;                             // measurements; at least 1
  std::optional<std::filesystem::path> json;  // also written here
};

// Encodes the text as one segment without special tokens, then decodes its ids, `repeat` times each
// on this thread, and prints a table. kUsage: no vocabulary, an empty text. kFailed: the file
// cannot be read or is too large. kOutput: `json` cannot be written.
Status bench(const BenchOptions& options);

}  // namespace k3::tokenizer
