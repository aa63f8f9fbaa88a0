// k3 verify: checks a checkpoint, and what was built from it, without running it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/expert_index.h"
#include "common/checkpoint/packed_trunk.h"
#include "common/checkpoint/work_folder.h"
#include "tools/k3/commands.h"
#include "tools/k3/progress_bar.h"
#include "tools/k3/verify_contents.h"

namespace k3::cli {
namespace {

struct VerifyOptions {
  std::filesystem::path model;
  std::optional<std::filesystem::path> work;
  std::optional<int> layers;
  bool full = false;
};

// What Checkpoint::open has checked, one line each.
void print_structure(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  const auto mla = std::count(config.attention.begin(), config.attention.end(), Attention::kMla);
  std::uint64_t bytes = 0;
  for (const Shard& shard : checkpoint.shards()) bytes += shard.file_bytes;
  fmt::print("configuration: {} layers ({} KDA, {} MLA), {} experts, top-{}\n", config.layers,
             config.layers - mla, mla, config.experts, config.top_k);
  if (config.layers != checkpoint.model_layers()) {
    fmt::print("layers: the first {} of {}: not the whole model\n", config.layers,
               checkpoint.model_layers());
  }
  fmt::print("shards: {} files, {} bytes, every byte belongs to one tensor\n",
             checkpoint.shards().size(), bytes);
  fmt::print("tensors: {} in use, each once, with its exact shape and a legal dtype; {} not used\n",
             checkpoint.tensors().size(), checkpoint.unused_tensors().size());
  fmt::print("A_log: one value a head, the rest zero\n");
  fmt::print("fingerprint: {}\n", checkpoint.fingerprint());
}

// Opens a file that was built from the checkpoint with `open`; nothing when it is not there.
template <class Built, class Open>
Result<std::optional<Built>> open_built(const std::filesystem::path& work, const char* file,
                                        std::string_view what, const Open& open) {
  std::error_code ignored;
  if (!std::filesystem::exists(work / file, ignored)) {
    fmt::print("{}: none in {}\n", what, work.string());
    return std::nullopt;
  }
  K3_ASSIGN(Built built, open());
  fmt::print("{}: {} is sound and belongs to this checkpoint\n", what, (work / file).string());
  return built;
}

Status check_contents(const Checkpoint& checkpoint, const std::optional<ExpertIndex>& index,
                      const std::optional<UnitTable>& trunk) {
  ProgressBar bar("reading");
  ContentsCheck check([&bar](std::uint64_t done, std::uint64_t total) { bar.update(done, total); });
  check.check_tensors(checkpoint, index ? &*index : nullptr);
  if (index) check.check_experts(checkpoint, *index);
  if (trunk) check.check_units(checkpoint, *trunk);
  for (const std::string& finding : check.findings()) fmt::print("unsound: {}\n", finding);
  if (!check.findings().empty()) {
    return fail(ErrorCode::kWeights, "{}: {} findings in the contents",
                checkpoint.directory().string(), check.findings().size());
  }
  fmt::print("contents: every byte read, all trunk values finite, no expert scale is NaN\n");
  return {};
}

Status run_verify(const VerifyOptions& options) {
  K3_ASSIGN(const Checkpoint checkpoint,
            Checkpoint::open(options.model, {.layers = options.layers}));
  print_structure(checkpoint);
  const std::filesystem::path work = work_folder(options.work, checkpoint);
  K3_ASSIGN(const std::optional<ExpertIndex> index,
            (open_built<ExpertIndex>(work, kExpertIndexFile, "expert index",
                                     [&] { return read_expert_index(work, checkpoint); })));
  K3_ASSIGN(const std::optional<UnitTable> trunk,
            (open_built<UnitTable>(work, kPackedTrunkFile, "packed trunk",
                                   [&] { return open_packed_trunk(work, checkpoint); })));
  if (options.full) K3_TRY(check_contents(checkpoint, index, trunk));
  fmt::print("ok\n");
  return {};
}

}  // namespace

void add_verify(CLI::App& root, Action& action) {
  CLI::App* const command = root.add_subcommand(
      "verify", "Checks a checkpoint's files against every structural rule; exit 4 when unsound.");
  const auto options = std::make_shared<VerifyOptions>();
  command->add_option("--model", options->model, "checkpoint directory")->required();
  command->add_option("--layers", options->layers, "only the first N layers of a partial download");
  command->add_flag("--full", options->full,
                    "read every byte: NaN and infinities, and the checksums of index and trunk");
  command->add_option("--work", options->work,
                      "directory of the expert index and packed trunk (default: MODEL/.k3)");
  command->callback([options, &action] { action = [options] { return run_verify(*options); }; });
}

}  // namespace k3::cli
