// fmt, with its formatter compiled once, in libfmt, instead of in every file that logs.
#pragma once

#include <fmt/format.h>

#if FMT_VERSION / 10000 == 9 && !defined(FMT_HEADER_ONLY)

namespace fmt {
inline namespace v9 {
namespace detail {

// Declared by hand, since fmt 9 alone does not: halves the time to compile a file that uses spdlog.
extern template void vformat_to<char>(buffer<char>&, basic_string_view<char>,
                                      basic_format_args<buffer_context<char>>, locale_ref);

}  // namespace detail
}  // namespace v9
}  // namespace fmt

#endif
