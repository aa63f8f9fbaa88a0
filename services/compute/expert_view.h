// How the six parts of a routed expert become its three matrices.
#pragma once

#include <array>
#include <cstdint>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/model_config.h"
#include "services/compute/weight_source.h"

namespace k3::compute {

// The first byte of each part, in ExpertPart order; borrowed by the view.
using ExpertParts = std::array<const std::uint8_t*, kExpertParts>;

// The view of parts that have expert_part_bytes() of `config` each. Any thread.
ExpertView expert_view(const ModelConfig& config, std::uint32_t expert, const ExpertParts& parts);

}  // namespace k3::compute
