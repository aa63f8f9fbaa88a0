// k3 index: writes where every routed expert lies.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/expert_index.h"
#include "common/checkpoint/work_folder.h"
#include "tools/k3/commands.h"
#include "tools/k3/output_folder.h"
#include "tools/k3/progress_bar.h"

namespace k3::cli {
namespace {

struct IndexOptions {
  std::filesystem::path model;
  std::optional<std::filesystem::path> work;
  bool checksums = false;
  std::optional<int> layers;
};

Result<ExpertIndex> build(const Checkpoint& checkpoint, bool checksums) {
  ProgressBar bar("indexing");
  return build_expert_index(checkpoint, checksums, [&bar](std::uint64_t done, std::uint64_t total) {
    bar.update(done, total);
  });
}

Status run_index(const IndexOptions& options) {
  K3_ASSIGN(const Checkpoint checkpoint,
            Checkpoint::open(options.model, {.layers = options.layers}));
  const std::filesystem::path folder = work_folder(options.work, checkpoint);
  K3_TRY(make_writable(folder, "--work"));
  K3_ASSIGN(const ExpertIndex index, build(checkpoint, options.checksums));
  K3_TRY(write_expert_index(index, folder));
  std::size_t extents = 0;
  for (const ExpertLocation& location : index.locations) extents += location.extents.size();
  fmt::print("{}: {} experts of {} bytes in {} extents, {} checksums\n",
             (folder / kExpertIndexFile).string(), index.locations.size(), index.expert_bytes(),
             extents, options.checksums ? "with" : "without");
  return {};
}

}  // namespace

void add_index(CLI::App& root, Action& action) {
  CLI::App* const command =
      root.add_subcommand("index", "Writes where every routed expert lies, experts.k3x.");
  const auto options = std::make_shared<IndexOptions>();
  command->add_option("--model", options->model, "checkpoint directory")->required();
  command->add_option("--work", options->work, "directory of the file (default: MODEL/.k3)");
  command->add_flag("--checksums", options->checksums,
                    "read every expert and store its checksum, verified at each later read");
  command->add_option("--layers", options->layers, "only the first N layers of a partial download");
  command->callback([options, &action] { action = [options] { return run_index(*options); }; });
}

}  // namespace k3::cli
