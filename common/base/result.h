// Errors as values: every call a caller can act on returns Result<T>.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "common/base/format.h"

namespace k3 {

// What went wrong, as far as a caller acts on it. The numbers travel on the wire and, except
// kUnavailable, are the exit codes of every binary (docs/architecture.md, "Exit codes").
enum class ErrorCode : int {
  kFailed = 1,         // the operation failed; nothing more specific applies
  kUsage = 2,          // bad flag, bad request, or a configuration that cannot be trusted
  kOutput = 3,         // results could not be written
  kWeights = 4,        // a weight, shard or checksum is unsound or cannot be read
  kStopped = 5,        // stopped early on request
  kIncompatible = 6,   // protocol version or model fingerprint differs
  kBug = 70,           // an invariant broke
  kUnavailable = 100,  // the peer is down or restarted: ask again (exit code 1)
};

// `message` names the file, field, layer or expert, the value found and the value expected.
struct Error {
  ErrorCode code = ErrorCode::kFailed;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

template <class... Args>
[[nodiscard]] tl::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> format,
                                         Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

// The process exit code for an error.
constexpr int exit_code(ErrorCode code) {
  return code == ErrorCode::kUnavailable ? 1 : static_cast<int>(code);
}

}  // namespace k3

#define K3_CONCAT_INNER(a, b) a##b
#define K3_CONCAT(a, b) K3_CONCAT_INNER(a, b)

// Returns the error of `expr` (a Status or Result) from the calling function.
#define K3_TRY(expr)                                                    \
  do {                                                                  \
    if (auto k3_status = (expr); !k3_status) {                          \
      return tl::unexpected<::k3::Error>(std::move(k3_status.error())); \
    }                                                                   \
  } while (0)

// Declares `decl` from the value of `expr`, or returns its error.
#define K3_ASSIGN(decl, expr)                                                               \
  auto K3_CONCAT(k3_result_, __LINE__) = (expr);                                            \
  if (!K3_CONCAT(k3_result_, __LINE__)) {                                                   \
    return tl::unexpected<::k3::Error>(std::move(K3_CONCAT(k3_result_, __LINE__).error())); \
  }                                                                                         \
  decl = std::move(*K3_CONCAT(k3_result_, __LINE__))
