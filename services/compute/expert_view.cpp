#include "services/compute/expert_view.h"

namespace k3::compute {

ExpertView expert_view(const ModelConfig& config, std::uint32_t expert, const ExpertParts& parts) {
  const auto matrix = [&](ExpertPart packed, ExpertPart scale, int rows, int cols) {
    return kernels::Matrix{.format = kernels::WeightFormat::kMxfp4,
                           .data = parts[static_cast<int>(packed)],
                           .scales = parts[static_cast<int>(scale)],
                           .rows = static_cast<std::size_t>(rows),
                           .cols = static_cast<std::size_t>(cols)};
  };
  const int width = config.expert_width;
  const int latent = config.latent;
  return ExpertView{.expert = expert,
                    .w1 = matrix(ExpertPart::kW1Packed, ExpertPart::kW1Scale, width, latent),
                    .w2 = matrix(ExpertPart::kW2Packed, ExpertPart::kW2Scale, latent, width),
                    .w3 = matrix(ExpertPart::kW3Packed, ExpertPart::kW3Scale, width, latent)};
}

}  // namespace k3::compute
