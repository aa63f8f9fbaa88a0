// K3_CHECK: a broken invariant ends the process (the supervisor restarts it). Never used on input.
#pragma once

#include <string_view>

namespace k3 {

// Prints one line with the place and the condition, then aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view detail);

}  // namespace k3

// `detail` is a string naming the values involved.
#define K3_CHECK(condition, detail)                                 \
  do {                                                              \
    if (!(condition)) {                                             \
      ::k3::check_failed(__FILE__, __LINE__, #condition, (detail)); \
    }                                                               \
  } while (0)
