// k3 census: what a checkpoint consists of.
#include "tools/k3/census.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/checkpoint/model_tensors.h"
#include "common/checkpoint/trunk_order.h"
#include "tools/k3/commands.h"

namespace k3::cli {
namespace {

struct CensusOptions {
  std::filesystem::path model;
  std::optional<int> layers;
  bool json = false;
};

Tally tally_of(const Checkpoint::NamedTensor& tensor) {
  Tally tally{.tensors = 1, .parameters = 1, .bytes = tensor.place->bytes};
  for (const std::uint64_t dimension : tensor.place->shape) tally.parameters *= dimension;
  if (tensor.name.ends_with(".weight_packed")) tally.parameters *= 2;
  if (tensor.name.ends_with(".weight_scale")) tally.parameters = 0;
  return tally;
}

nlohmann::ordered_json json_of(const Tally& tally) {
  return {{"tensors", tally.tensors}, {"parameters", tally.parameters}, {"bytes", tally.bytes}};
}

void print_json(const Checkpoint& checkpoint, const Census& census) {
  nlohmann::ordered_json classes;
  for (std::size_t i = 0; i < kTensorClasses; ++i) {
    classes[std::string(name_of(TensorClass(i)))] = json_of(census.classes[i]);
  }
  const nlohmann::ordered_json report = {
      {"layers", checkpoint.config().layers}, {"model_layers", checkpoint.model_layers()},
      {"shards", checkpoint.shards().size()}, {"classes", classes},
      {"total", json_of(census.total())},     {"unused", json_of(census.unused)}};
  fmt::print("{}\n", report.dump(1));
}

void print_line(std::string_view name, const Tally& tally) {
  fmt::print("{:<20}{:>10}{:>20}{:>20}\n", name, tally.tensors, tally.parameters, tally.bytes);
}

void print_table(const Checkpoint& checkpoint, const Census& census) {
  if (checkpoint.config().layers != checkpoint.model_layers()) {
    fmt::print("the first {} of {} layers: not the whole model\n", checkpoint.config().layers,
               checkpoint.model_layers());
  }
  fmt::print("{:<20}{:>10}{:>20}{:>20}\n", "class", "tensors", "parameters", "bytes");
  for (std::size_t i = 0; i < kTensorClasses; ++i) {
    print_line(name_of(TensorClass(i)), census.classes[i]);
  }
  print_line("total", census.total());
  print_line("unused", census.unused);
}

Status run_census(const CensusOptions& options) {
  K3_ASSIGN(const Checkpoint checkpoint,
            Checkpoint::open(options.model, {.layers = options.layers}));
  const Census census = take_census(checkpoint);
  if (options.json) {
    print_json(checkpoint, census);
  } else {
    print_table(checkpoint, census);
  }
  return {};
}

}  // namespace

std::string_view name_of(TensorClass tensor_class) {
  switch (tensor_class) {
    case TensorClass::kRoutedExperts:
      return "routed_experts";
    case TensorClass::kSharedExperts:
      return "shared_experts";
    case TensorClass::kAttention:
      return "attention";
    case TensorClass::kEmbeddingAndHead:
      return "embedding_and_head";
    case TensorClass::kOther:
      break;
  }
  return "other";
}

TensorClass class_of(std::string_view tensor) {
  const auto contains = [tensor](std::string_view part) {
    return tensor.find(part) != std::string_view::npos;
  };
  if (parse_expert_tensor_name(tensor)) return TensorClass::kRoutedExperts;
  if (contains(".shared_experts.")) return TensorClass::kSharedExperts;
  if (contains(".self_attn.")) return TensorClass::kAttention;
  if (tensor == kEmbeddingName || contains(".lm_head.")) return TensorClass::kEmbeddingAndHead;
  return TensorClass::kOther;
}

Tally& Tally::operator+=(const Tally& other) {
  tensors += other.tensors;
  parameters += other.parameters;
  bytes += other.bytes;
  return *this;
}

Tally Census::total() const {
  Tally sum;
  for (const Tally& tally : classes) sum += tally;
  return sum;
}

Census take_census(const Checkpoint& checkpoint) {
  Census census;
  for (const Checkpoint::NamedTensor& tensor : checkpoint.tensors()) {
    census.classes[static_cast<std::size_t>(class_of(tensor.name))] += tally_of(tensor);
  }
  for (const Checkpoint::NamedTensor& tensor : checkpoint.unused_tensors()) {
    census.unused += tally_of(tensor);
  }
  return census;
}

void add_census(CLI::App& root, Action& action) {
  CLI::App* const command =
      root.add_subcommand("census", "Counts tensors, parameters and bytes by class.");
  const auto options = std::make_shared<CensusOptions>();
  command->add_option("--model", options->model, "checkpoint directory")->required();
  command->add_option("--layers", options->layers, "only the first N layers of a partial download");
  command->add_flag("--json", options->json, "print JSON instead of a table");
  command->callback([options, &action] { action = [options] { return run_census(*options); }; });
}

}  // namespace k3::cli
