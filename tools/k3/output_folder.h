// Where pack and index put what they build.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "common/base/result.h"
#include "common/checkpoint/checkpoint.h"

namespace k3::cli {

// MODEL/.k3, or its folder layers-N when only the first N layers are in use: what is built for some
// layers serves no others.
std::filesystem::path default_folder(const Checkpoint& checkpoint);

// `base` in place of MODEL/.k3.
std::filesystem::path work_folder(const std::filesystem::path& base, const Checkpoint& checkpoint);

// Creates `folder` and makes sure that files can be written in it. kOutput naming the folder, the
// reason and the flag that names another.
Status make_writable(const std::filesystem::path& folder, std::string_view flag);

}  // namespace k3::cli
