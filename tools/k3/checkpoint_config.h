// The config.json of a checkpoint that is made up: a named shape, and changes to it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace k3::cli {

// "KEY=VALUE": KEY is a field of text_config or, with a dot, of an object in it
// ("linear_attn_config.num_heads"); VALUE is JSON, or else a string.
using Override = std::string;

// The text of config.json in the released, nested form for `shape`: tiny, demo, released, or a file
// of that form. With `layers` the lists of KDA and MLA layers are fitted to that many: MLA layers
// beyond are dropped; layers beyond the shape's get MLA at every fourth and the last. kUsage for an
// unreadable file, an unknown field, or a result that is no legal configuration.
Result<std::string> checkpoint_config(std::string_view shape, std::optional<int> layers,
                                      const std::vector<Override>& overrides);

}  // namespace k3::cli
