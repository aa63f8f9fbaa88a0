// A folder of a test's own and files in it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/support/temp_dir.h"

namespace k3::test {

class TemporaryFolder {
 public:
  TemporaryFolder() { std::filesystem::create_directory(path_); }

  const std::filesystem::path& path() const { return path_; }

  // Writes `content` to a file of the folder, making its parents; returns its path.
  std::filesystem::path write(const std::string& name, std::string_view content) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }

 private:
  TempDir parent_;
  std::filesystem::path path_ = parent_.path() / "a tést";  // a legal, if awkward, name
};

// The whole file as a string.
inline std::string content_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// `bytes` that differ from place to place, so that a misplaced read shows.
inline std::string patterned(std::size_t bytes, std::uint32_t seed = 1) {
  std::string text(bytes, '\0');
  std::uint32_t state = seed;
  for (char& c : text) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<char>(state >> 24);
  }
  return text;
}

}  // namespace k3::test
