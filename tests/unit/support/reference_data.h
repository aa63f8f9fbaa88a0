// Where the third-party reference data lies, for tests that need it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

namespace k3::test {

// The folder K3_REFERENCE_DIR names (tests/run.sh sets it), or nothing.
inline std::optional<std::filesystem::path> reference_dir() {
  const char* dir = std::getenv("K3_REFERENCE_DIR");
  if (dir == nullptr || *dir == '\0' || !std::filesystem::exists(dir)) return std::nullopt;
  return std::filesystem::path(dir);
}

// The repository's root, for goldens of our own.
inline std::filesystem::path source_dir() { return K3_SOURCE_DIR; }

}  // namespace k3::test

// Skips the test by name where the reference data is absent; fails instead when
// REQUIRE_REFERENCE=1. Declares `decl`, the folder.
#define K3_REFERENCE_OR_SKIP(decl)                                          \
  const auto k3_reference = ::k3::test::reference_dir();                    \
  if (!k3_reference) {                                                      \
    const char* k3_required = std::getenv("REQUIRE_REFERENCE");             \
    if (k3_required != nullptr && std::string_view(k3_required) == "1") {   \
      FAIL() << "REQUIRE_REFERENCE=1 but K3_REFERENCE_DIR names no folder"; \
    }                                                                       \
    GTEST_SKIP() << "needs K3_REFERENCE_DIR";                               \
  }                                                                         \
  const std::filesystem::path decl = *k3_reference
