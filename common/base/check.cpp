#include "common/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace k3 {

void check_failed(const char* file, int line, const char* condition, std::string_view detail) {
  std::fprintf(stderr, "bug: %s:%d: %s: %.*s\n", file, line, condition,
               static_cast<int>(detail.size()), detail.data());
  std::abort();
}

}  // namespace k3
