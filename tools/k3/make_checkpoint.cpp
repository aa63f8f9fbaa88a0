// k3 make-checkpoint: random weights in the released layout, at any shape.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/model_config.h"
#include "tools/k3/checkpoint_config.h"
#include "tools/k3/checkpoint_plan.h"
#include "tools/k3/checkpoint_writer.h"
#include "tools/k3/commands.h"
#include "tools/k3/progress_bar.h"

namespace k3::cli {
namespace {

struct MakeCheckpointOptions {
  std::filesystem::path out;
  std::string shape = "tiny";
  std::optional<int> layers;
  std::optional<int> experts;
  std::optional<int> top_k;
  std::optional<int> vocab;
  std::vector<std::string> overrides;
  bool scatter = false;
  CheckpointContent content;
};

// The short flags as overrides, before those of --set.
std::vector<Override> overrides_of(const MakeCheckpointOptions& options) {
  std::vector<Override> overrides;
  const auto add = [&](const char* field, std::optional<int> value) {
    if (value) overrides.push_back(fmt::format("{}={}", field, *value));
  };
  add("num_experts", options.experts);
  add("num_experts_per_token", options.top_k);
  add("vocab_size", options.vocab);
  overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());
  return overrides;
}

// The released shape with nothing changed.
bool is_released_size(const MakeCheckpointOptions& options) {
  return options.shape == "released" && !options.layers && overrides_of(options).empty();
}

Status run_make_checkpoint(const MakeCheckpointOptions& options) {
  K3_ASSIGN(const std::string config_json,
            checkpoint_config(options.shape, options.layers, overrides_of(options)));
  K3_ASSIGN(const ModelConfig config, parse_model_config(config_json, "config.json"));
  CheckpointPlan plan = plan_checkpoint(config, options.scatter);
  if (is_released_size(options)) add_vision_stand_ins(plan);
  std::uint64_t bytes = 0;
  for (const PlannedTensor& tensor : plan.tensors) bytes += tensor.bytes;

  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar bar("writing");
    K3_TRY(write_checkpoint(
        plan, config_json, options.content, options.out,
        [&bar](std::uint64_t done, std::uint64_t total) { bar.update(done, total); }));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("{}: {} shards, {} tensors, {} bytes{}, {:.1f} s\n", options.out.string(),
             plan.shards, plan.tensors.size(), bytes, options.content.sparse ? ", sparse" : "",
             seconds.count());
  return {};
}

}  // namespace

void add_make_checkpoint(CLI::App& root, Action& action) {
  CLI::App* const command = root.add_subcommand(
      "make-checkpoint", "Writes a checkpoint of random weights in the released layout.");
  const auto options = std::make_shared<MakeCheckpointOptions>();
  command->add_option("--out", options->out, "directory to write; new or empty")->required();
  command->add_option("--shape", options->shape, "tiny, demo, released, or a nested config.json")
      ->capture_default_str();
  command->add_option("--layers", options->layers, "decoder layers; the layer lists are fitted");
  command->add_option("--experts", options->experts, "routed experts a layer");
  command->add_option("--top-k", options->top_k, "experts chosen per token");
  command->add_option("--vocab", options->vocab, "vocabulary size");
  command
      ->add_option("--set", options->overrides,
                   "KEY=VALUE: a field of text_config, nested ones with a dot; repeatable")
      ->take_all();
  command->add_option("--seed", options->content.seed, "equal seeds give equal weights")
      ->capture_default_str();
  CLI::Option* const sparse =
      command->add_flag("--sparse", options->content.sparse, "holes in place of tensor data");
  command
      ->add_option("--fill-layers", options->content.filled_layers,
                   "with --sparse: values for the first N layers and the top level")
      ->check(CLI::NonNegativeNumber)
      ->needs(sparse);
  command->add_flag("--scatter", options->scatter,
                    "the other legal layout: tensors dealt over all shards in mixed order");
  command->callback(
      [options, &action] { action = [options] { return run_make_checkpoint(*options); }; });
}

}  // namespace k3::cli
