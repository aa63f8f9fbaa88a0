#include "services/tokenizer/vocabulary.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <system_error>

#include "common/base/file.h"
#include "services/tokenizer/base64.h"

namespace k3::tokenizer {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxNameBytes = 256;

struct ReleasedName {
  std::int32_t slot;  // behind the ranks
  std::string_view name;
};

constexpr std::array<ReleasedName, 16> kReleasedNames = {{
    {0, "[BOS]"},
    {1, "[EOS]"},
    {2, "<|end_of_msg|>"},
    {3, "<|open|>"},
    {4, "<|close|>"},
    {5, "<|sep|>"},
    {6, "[start_header_id]"},
    {7, "[end_header_id]"},
    {9, "[EOT]"},
    {18, "<|media_begin|>"},
    {19, "<|media_content|>"},
    {20, "<|media_end|>"},
    {21, "<|media_pad|>"},
    {65, "<osagent_mode>"},
    {254, "[UNK]"},
    {255, "[PAD]"},
}};

// What the chat format is made of; a vocabulary without them belongs to another model.
constexpr std::array<std::string_view, 5> kRequiredNames = {"[EOS]", "<|end_of_msg|>", "<|open|>",
                                                            "<|close|>", "<|sep|>"};

SpecialNames released_names(std::int32_t ranks) {
  SpecialNames names;
  for (const ReleasedName& released : kReleasedNames) {
    names.emplace(ranks + released.slot, released.name);
  }
  return names;
}

std::optional<std::int32_t> parse_decimal(std::string_view text) {
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// kUsage, since trying again does not mend it.
Result<std::string> read_vocabulary_file(const std::filesystem::path& path) {
  Result<std::string> content = read_text_file(path, kMaxFileBytes);
  if (!content) return fail(ErrorCode::kUsage, "{}", content.error().message);
  return content;
}

// A file that is there but cannot be looked at is not absent: opening it will say why.
bool is_absent(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::status(path, ignored).type() == std::filesystem::file_type::not_found;
}

}  // namespace

Result<std::optional<Vocabulary>> Vocabulary::load(const std::filesystem::path& model_dir) {
  const std::filesystem::path ranks_path = model_dir / "tiktoken.model";
  const std::filesystem::path config_path = model_dir / "tokenizer_config.json";
  if (is_absent(ranks_path)) return std::optional<Vocabulary>();

  std::optional<SpecialNames> names;
  if (!is_absent(config_path)) {
    K3_ASSIGN(const std::string json, read_vocabulary_file(config_path));
    K3_ASSIGN(names, parse_special_names(json, config_path.string()));
  }
  K3_ASSIGN(const std::string tiktoken, read_vocabulary_file(ranks_path));
  K3_ASSIGN(std::optional<Vocabulary> vocabulary, parse(tiktoken, names, ranks_path.string()));
  return vocabulary;
}

Result<Vocabulary> Vocabulary::parse(std::string_view tiktoken,
                                     const std::optional<SpecialNames>& names,
                                     std::string_view file) {
  Vocabulary vocabulary;
  K3_TRY(vocabulary.read_ranks(tiktoken, file));
  K3_TRY(vocabulary.check_bytes(file));
  const auto ranks = static_cast<std::int32_t>(vocabulary.tokens_.size());
  K3_TRY(vocabulary.add_specials(names ? *names : released_names(ranks), file));
  return vocabulary;
}

Result<SpecialNames> Vocabulary::parse_special_names(std::string_view json, std::string_view file) {
  const auto config = nlohmann::json::parse(json, nullptr, false);
  if (config.is_discarded()) return fail(ErrorCode::kUsage, "{}: not valid JSON", file);
  const auto decoder = config.find("added_tokens_decoder");
  if (decoder == config.end() || !decoder->is_object()) {
    return fail(ErrorCode::kUsage, "{}: added_tokens_decoder is missing or not an object", file);
  }
  SpecialNames names;
  for (const auto& [key, token] : decoder->items()) {
    const std::optional<std::int32_t> id = parse_decimal(key);
    if (!id) {
      return fail(ErrorCode::kUsage, "{}: added_tokens_decoder: \"{}\" is not a token id", file,
                  key);
    }
    const auto content = token.is_object() ? token.find("content") : token.end();
    if (content == token.end() || !content->is_string()) {
      return fail(ErrorCode::kUsage, "{}: added_tokens_decoder: id {} has no string \"content\"",
                  file, *id);
    }
    if (!names.emplace(*id, content->get<std::string>()).second) {
      return fail(ErrorCode::kUsage, "{}: added_tokens_decoder: id {} is listed twice", file, *id);
    }
  }
  return names;
}

Status Vocabulary::read_ranks(std::string_view tiktoken, std::string_view file) {
  if (tiktoken.empty()) return fail(ErrorCode::kUsage, "{}: is empty", file);
  if (!tiktoken.ends_with('\n')) {
    return fail(ErrorCode::kUsage, "{}: the last line has no end; the file is cut off", file);
  }
  const auto lines = static_cast<std::size_t>(std::count(tiktoken.begin(), tiktoken.end(), '\n'));
  storage_.reserve(tiktoken.size());
  tokens_.reserve(lines + kSpecialTokens);
  rank_of_.reserve(lines);
  for (std::int32_t rank = 0; !tiktoken.empty(); ++rank) {
    const std::string_view line = tiktoken.substr(0, tiktoken.find('\n'));
    tiktoken.remove_prefix(line.size() + 1);
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos) {
      return fail(ErrorCode::kUsage, "{}:{}: expected `base64 rank`", file, rank + 1);
    }
    const std::optional<std::string> bytes = decode_base64(line.substr(0, space));
    if (!bytes || bytes->empty()) {
      return fail(ErrorCode::kUsage, "{}:{}: \"{}\" is not the base64 of a token", file, rank + 1,
                  line.substr(0, space));
    }
    if (parse_decimal(line.substr(space + 1)) != rank) {
      return fail(ErrorCode::kUsage, "{}:{}: rank \"{}\" found, {} expected", file, rank + 1,
                  line.substr(space + 1), rank);
    }
    const std::string_view token(storage_.data() + storage_.size(), bytes->size());
    storage_.insert(storage_.end(), bytes->begin(), bytes->end());
    tokens_.push_back(token);
    longest_token_bytes_ = std::max(longest_token_bytes_, token.size());
    if (const auto [other, added] = rank_of_.emplace(token, rank); !added) {
      return fail(ErrorCode::kUsage, "{}:{}: the same token as line {}", file, rank + 1,
                  other->second + 1);
    }
  }
  return {};
}

// Byte-pair encoding starts from single bytes, so each must be a token.
Status Vocabulary::check_bytes(std::string_view file) const {
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    if (!rank({&character, 1})) {
      return fail(ErrorCode::kUsage, "{}: no token for the single byte 0x{:02x}", file, byte);
    }
  }
  return {};
}

Status Vocabulary::add_specials(const SpecialNames& names, std::string_view file) {
  const auto first = static_cast<std::int32_t>(tokens_.size());
  for (const auto& [id, name] : names) {
    if (id < first || id >= first + kSpecialTokens) {
      return fail(ErrorCode::kUsage, "special token {} \"{}\": its id is not in {}..{}, behind {}",
                  id, name, first, first + kSpecialTokens - 1, file);
    }
    if (name.empty() || name.size() > kMaxNameBytes) {
      return fail(ErrorCode::kUsage, "special token {}: a name of {} bytes, 1 to {} are allowed",
                  id, name.size(), kMaxNameBytes);
    }
  }
  special_names_.reserve(kSpecialTokens);
  for (std::int32_t id = first; id < first + kSpecialTokens; ++id) {
    const auto named = names.find(id);
    special_names_.push_back(named != names.end() ? named->second
                                                  : fmt::format("<|reserved_token_{}|>", id));
    const std::string_view name = special_names_.back();
    tokens_.push_back(name);
    if (const auto [other, added] = special_of_.emplace(name, id); !added) {
      return fail(ErrorCode::kUsage, "special tokens {} and {} are both called \"{}\"",
                  other->second, id, name);
    }
    special_lengths_.push_back(name.size());
    if (special_first_bytes_.find(name.front()) == std::string::npos) {
      special_first_bytes_ += name.front();
    }
  }
  std::sort(special_lengths_.begin(), special_lengths_.end(), std::greater<>());
  special_lengths_.erase(std::unique(special_lengths_.begin(), special_lengths_.end()),
                         special_lengths_.end());
  for (const std::string_view name : kRequiredNames) {
    if (!special(name)) {
      return fail(ErrorCode::kUsage, "no special token is called \"{}\": not a K3 vocabulary",
                  name);
    }
  }
  return {};
}

std::optional<std::int32_t> Vocabulary::rank(std::string_view bytes) const {
  const auto found = rank_of_.find(bytes);
  return found == rank_of_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::int32_t> Vocabulary::special(std::string_view name) const {
  const auto found = special_of_.find(name);
  return found == special_of_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Vocabulary::Found> Vocabulary::find_special(std::string_view text) const {
  std::size_t at = text.find_first_of(special_first_bytes_);
  while (at != std::string_view::npos) {
    for (const std::size_t bytes : special_lengths_) {
      if (bytes > text.size() - at) continue;
      if (const auto id = special(text.substr(at, bytes))) return Found{at, bytes, *id};
    }
    at = text.find_first_of(special_first_bytes_, at + 1);
  }
  return std::nullopt;
}

std::vector<std::int32_t> Vocabulary::stop_ids() const {
  return {*special("<|end_of_msg|>"), *special("[EOS]")};
}

}  // namespace k3::tokenizer
