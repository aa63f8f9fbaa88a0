// The released vocabulary and the goldens beside it, from the reference folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "services/tokenizer/vocabulary.h"
#include "tests/unit/support/reference_data.h"

namespace k3::test {

inline std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(read_all(path));
}

// tiktoken.model with the names special_tokens.json lists.
inline tokenizer::Vocabulary reference_vocabulary(const std::filesystem::path& reference) {
  const std::filesystem::path folder = reference / "tokenizer";
  tokenizer::SpecialNames names;
  const auto listed = read_json(folder / "special_tokens.json");
  for (const auto& token : listed.at("tokens")) {
    names.emplace(token.at("id").get<std::int32_t>(), token.at("text").get<std::string>());
  }
  return tokenizer::Vocabulary::parse(read_all(folder / "tiktoken.model"), names, "tiktoken.model")
      .value();
}

// The vocabulary of the demo checkpoint in this repository.
inline std::filesystem::path demo_model() { return source_dir() / "launch" / "demo-model"; }
inline tokenizer::Vocabulary demo_vocabulary() {
  return std::move(*tokenizer::Vocabulary::load(demo_model()).value());
}

}  // namespace k3::test
