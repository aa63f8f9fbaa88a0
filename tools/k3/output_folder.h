// The folder a command writes into.
#pragma once

#include <filesystem>
#include <string_view>

#include "common/base/result.h"

namespace k3::cli {

// Creates `folder` and makes sure that files can be written in it. kOutput naming the folder, the
// reason and the flag that names another.
Status make_writable(const std::filesystem::path& folder, std::string_view flag);

}  // namespace k3::cli
