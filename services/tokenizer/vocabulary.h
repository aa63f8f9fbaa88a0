// The tokens of a checkpoint: byte strings by rank, and the 256 special tokens behind them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/result.h"

namespace k3::tokenizer {

// Names of special tokens by id, as tokenizer_config.json gives them.
using SpecialNames = std::map<std::int32_t, std::string>;

// Ids 0..ranks()-1 are the lines of tiktoken.model, the next 256 the special tokens. A special slot
// without a name is called <|reserved_token_ID|>. Immutable; any thread.
class Vocabulary {
 public:
  static constexpr std::int32_t kSpecialTokens = 256;

  // Reads tiktoken.model in `model_dir`, and the special tokens' names from tokenizer_config.json;
  // without that file they are those of the released K3. Errors name file and line or field; kUsage
  // unless a file cannot be read. Empty when the directory holds no tiktoken.model.
  static Result<std::optional<Vocabulary>> load(const std::filesystem::path& model_dir);

  // Parses the text of a tiktoken.model: `base64(bytes) rank` a line, the ranks counting up from 0,
  // every single byte among the tokens. Without `names` those of the released K3. `file` is for
  // messages.
  static Result<Vocabulary> parse(std::string_view tiktoken,
                                  const std::optional<SpecialNames>& names, std::string_view file);

  // The names in a tokenizer_config.json: its added_tokens_decoder.
  static Result<SpecialNames> parse_special_names(std::string_view json, std::string_view file);

  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  std::int32_t ranks() const { return static_cast<std::int32_t>(tokens_.size()) - kSpecialTokens; }
  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
  std::size_t longest_token_bytes() const { return longest_token_bytes_; }

  // The bytes of token `id`, which is in 0..size()-1; of a special token its name.
  std::string_view bytes(std::int32_t id) const { return tokens_[static_cast<std::size_t>(id)]; }

  // The rank of exactly these bytes. Never a special token.
  std::optional<std::int32_t> rank(std::string_view bytes) const;
  // The special token of exactly this name.
  std::optional<std::int32_t> special(std::string_view name) const;

  // The first occurrence of a special token's name in `text`, the longest where several begin.
  struct Found {
    std::size_t offset;
    std::size_t bytes;
    std::int32_t id;
  };
  std::optional<Found> find_special(std::string_view text) const;

  // <|end_of_msg|> and [EOS]: a reply ends at either.
  std::vector<std::int32_t> stop_ids() const;

 private:
  Vocabulary() = default;
  Status read_ranks(std::string_view tiktoken, std::string_view file);
  Status check_bytes(std::string_view file) const;
  Status add_specials(const SpecialNames& names, std::string_view file);

  std::vector<char> storage_;             // of all tokens; never grows once views point into it
  std::vector<std::string_view> tokens_;  // by id
  std::unordered_map<std::string_view, std::int32_t> rank_of_;
  std::vector<std::string> special_names_;
  std::unordered_map<std::string_view, std::int32_t> special_of_;
  std::vector<std::size_t> special_lengths_;  // distinct, longest first
  std::string special_first_bytes_;           // distinct
  std::size_t longest_token_bytes_ = 0;
};

}  // namespace k3::tokenizer
