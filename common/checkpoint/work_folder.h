// Where the files built from a checkpoint lie.
#pragma once

#include <filesystem>
#include <optional>

#include "common/checkpoint/checkpoint.h"

namespace k3 {

// The absolute path of the folder of experts.k3x and trunk.k3t. The rule, for every command and
// service: `base` (--work), or MODEL/.k3 when there is none; in it layers-N when only the first N
// layers of the model are in use, since what is built for some layers serves no others.
std::filesystem::path work_folder(const std::optional<std::filesystem::path>& base,
                                  const Checkpoint& checkpoint);

}  // namespace k3
