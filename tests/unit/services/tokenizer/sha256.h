// SHA-256 (FIPS 180-4), for goldens too long to be listed.
#pragma once

#include <string>
#include <string_view>

namespace k3::test {

// 64 hexadecimal digits.
std::string sha256(std::string_view data);

}  // namespace k3::test
