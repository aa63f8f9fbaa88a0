#include "common/checkpoint/model_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>

#include "common/base/check.h"

namespace k3 {
namespace {

constexpr std::string_view kLayersPrefix = "language_model.model.layers.";
constexpr std::string_view kExpertsInfix = ".block_sparse_moe.experts.";
constexpr std::array<std::string_view, kExpertParts> kPartSuffixes = {
    ".w1.weight_packed", ".w1.weight_scale",  ".w2.weight_packed",
    ".w2.weight_scale",  ".w3.weight_packed", ".w3.weight_scale"};

constexpr std::uint64_t kWeightsPerByte = 2;
constexpr std::uint64_t kWeightsPerScale = 32;

bool consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// A decimal number without sign or leading zero.
std::optional<int> consume_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || text.front() == '-') return std::nullopt;
  const auto digits = static_cast<std::size_t>(end - text.data());
  if (digits > 1 && text.front() == '0') return std::nullopt;
  text.remove_prefix(digits);
  return number;
}

}  // namespace

std::vector<Shape> legal_shapes(const TrunkTensor& tensor, const ModelConfig& config) {
  const std::uint64_t rows = tensor.rows;
  const std::uint64_t cols = tensor.cols;
  switch (tensor.role) {
    case TrunkRole::kAttnResNorm:
    case TrunkRole::kInputNorm:
    case TrunkRole::kMlpResNorm:
    case TrunkRole::kPostNorm:
    case TrunkRole::kOutResNorm:
    case TrunkRole::kFinalNorm:
      return {{cols}, {1, cols}};
    case TrunkRole::kAttnResProj:
    case TrunkRole::kMlpResProj:
    case TrunkRole::kOutResProj:
      return {{1, cols}, {cols}};
    case TrunkRole::kKdaDtBias:
    case TrunkRole::kKdaONorm:
    case TrunkRole::kMlaQaNorm:
    case TrunkRole::kMlaKvaNorm:
    case TrunkRole::kRouterBias:
    case TrunkRole::kRoutedNorm:
      return {{cols}};
    case TrunkRole::kKdaALog:
      // Released checkpoints pad it to the head dimension.
      if (config.kda_head_dim > config.kda_heads) {
        return {{static_cast<std::uint64_t>(config.kda_head_dim)}, {cols}};
      }
      return {{cols}};
    case TrunkRole::kKdaQConv:
    case TrunkRole::kKdaKConv:
    case TrunkRole::kKdaVConv:
      return {{rows, 1, cols}};
    default:
      return {{rows, cols}};
  }
}

Shape expert_part_shape(const ModelConfig& config, ExpertPart part) {
  const auto latent = static_cast<std::uint64_t>(config.latent);
  const auto width = static_cast<std::uint64_t>(config.expert_width);
  switch (part) {
    case ExpertPart::kW1Packed:
    case ExpertPart::kW3Packed:
      return {width, latent / kWeightsPerByte};
    case ExpertPart::kW1Scale:
    case ExpertPart::kW3Scale:
      return {width, latent / kWeightsPerScale};
    case ExpertPart::kW2Packed:
      return {latent, width / kWeightsPerByte};
    case ExpertPart::kW2Scale:
      return {latent, width / kWeightsPerScale};
  }
  K3_CHECK(false, fmt::format("expert part {}", static_cast<int>(part)));
}

std::string text_of(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::uint64_t expert_part_bytes(const ModelConfig& config, ExpertPart part) {
  const Shape shape = expert_part_shape(config, part);
  return shape[0] * shape[1];
}

std::uint64_t expert_bytes(const ModelConfig& config) {
  std::uint64_t sum = 0;
  for (int part = 0; part < kExpertParts; ++part) {
    sum += expert_part_bytes(config, static_cast<ExpertPart>(part));
  }
  return sum;
}

std::string expert_tensor_name(int layer, int expert, ExpertPart part) {
  return fmt::format("{}{}{}{}{}", kLayersPrefix, layer, kExpertsInfix, expert,
                     kPartSuffixes[static_cast<std::size_t>(part)]);
}

std::optional<ExpertTensor> parse_expert_tensor_name(std::string_view name) {
  if (!consume(name, kLayersPrefix)) return std::nullopt;
  const std::optional<int> layer = consume_number(name);
  if (!layer || !consume(name, kExpertsInfix)) return std::nullopt;
  const std::optional<int> expert = consume_number(name);
  if (!expert) return std::nullopt;
  for (std::size_t part = 0; part < kPartSuffixes.size(); ++part) {
    if (name == kPartSuffixes[part]) return ExpertTensor{*layer, *expert, ExpertPart(part)};
  }
  return std::nullopt;
}

}  // namespace k3
