// k3 pack: writes the trunk once into a sequential, checksummed file of units.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/packed_trunk.h"
#include "common/checkpoint/work_folder.h"
#include "tools/k3/commands.h"
#include "tools/k3/output_folder.h"
#include "tools/k3/progress_bar.h"

namespace k3::cli {
namespace {

constexpr double kMaxUnitMb = 1e6;  // a terabyte: larger is a typing error

struct PackOptions {
  std::filesystem::path model;
  std::optional<std::filesystem::path> out;
  double unit_mb = 256;
  std::optional<int> layers;
};

Status run_pack(const PackOptions& options) {
  if (!(options.unit_mb > 0 && options.unit_mb <= kMaxUnitMb)) {
    return fail(ErrorCode::kUsage, "--unit-mb {}: expected above 0 and at most {}", options.unit_mb,
                kMaxUnitMb);
  }
  K3_ASSIGN(const Checkpoint checkpoint,
            Checkpoint::open(options.model, {.layers = options.layers}));
  const std::filesystem::path folder = options.out.value_or(work_folder(std::nullopt, checkpoint));
  K3_TRY(make_writable(folder, "--out"));

  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar bar("packing");
    K3_TRY(write_packed_trunk(
        checkpoint, folder, static_cast<std::uint64_t>(options.unit_mb * 1e6),
        [&bar](std::uint64_t done, std::uint64_t total) { bar.update(done, total); }));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  K3_ASSIGN(const UnitTable table, open_packed_trunk(folder, checkpoint));
  fmt::print("{}: {} bytes in {} units, the largest {} bytes, {:.2f} GB/s\n",
             (folder / kPackedTrunkFile).string(), table.pass_bytes(), table.units.size(),
             table.largest_unit_bytes(),
             static_cast<double>(table.pass_bytes()) / 1e9 / seconds.count());
  return {};
}

}  // namespace

void add_pack(CLI::App& root, Action& action) {
  CLI::App* const command = root.add_subcommand(
      "pack", "Writes the trunk into one sequential, checksummed file, trunk.k3t.");
  const auto options = std::make_shared<PackOptions>();
  command->add_option("--model", options->model, "checkpoint directory")->required();
  command->add_option("--out", options->out, "directory of the file (default: MODEL/.k3)");
  command
      ->add_option("--unit-mb", options->unit_mb,
                   "most megabytes of a unit: what is read, cached and delivered as one")
      ->capture_default_str();
  command->add_option("--layers", options->layers, "only the first N layers of a partial download");
  command->callback([options, &action] { action = [options] { return run_pack(*options); }; });
}

}  // namespace k3::cli
