// Where pack and index put what they build, and where run and verify look for it.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "common/base/result.h"
#include "common/checkpoint/checkpoint.h"

namespace k3::cli {

// The absolute path of the folder of experts.k3x and trunk.k3t. The rule, for all commands: `base`
// (--work), or MODEL/.k3 when there is none; in it layers-N when only the first N layers of the
// model are in use, since what is built for some layers serves no others.
std::filesystem::path work_folder(const std::optional<std::filesystem::path>& base,
                                  const Checkpoint& checkpoint);

// Creates `folder` and makes sure that files can be written in it. kOutput naming the folder, the
// reason and the flag that names another.
Status make_writable(const std::filesystem::path& folder, std::string_view flag);

}  // namespace k3::cli
