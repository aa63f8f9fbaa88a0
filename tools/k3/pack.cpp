// k3 pack: writes the trunk once into a sequential, checksummed file of units.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/packed_trunk.h"
#include "common/checkpoint/work_folder.h"
#include "tools/k3/commands.h"
#include "tools/k3/output_folder.h"
#include "tools/k3/progress_bar.h"
#include "tools/k3/terminal.h"

namespace k3::cli {
namespace {

constexpr double kMaxUnitMb = 1e6;  // a terabyte: larger is a typing error

struct PackOptions {
  std::filesystem::path model;
  std::optional<std::filesystem::path> out;
  double unit_mb = 256;
  bool raw = false;
  bool verbose = false;
  std::optional<int> layers;
};

// Bytes of one tensor, or of all.
struct Sizes {
  std::uint64_t raw = 0;  // as in the checkpoint
  std::uint64_t stored = 0;

  double ratio() const { return static_cast<double>(stored) / static_cast<double>(raw); }
};

std::vector<Sizes> sizes_by_tensor(const UnitTable& table, const std::vector<TrunkTensor>& order) {
  std::vector<Sizes> sizes(order.size());
  for (const Unit& unit : table.units) {
    for (const UnitBlock& block : unit.blocks) {
      const std::uint64_t value_bytes = block.encoding == TrunkEncoding::kRawF32 ? 4 : 2;
      sizes[block.tensor].raw += value_bytes * block.rows * order[block.tensor].cols;
      sizes[block.tensor].stored += block.length;
    }
  }
  return sizes;
}

Status print_sizes(const UnitTable& table, const std::vector<TrunkTensor>& order, bool verbose) {
  const std::vector<Sizes> sizes = sizes_by_tensor(table, order);
  Sizes all;
  std::string text;
  for (std::size_t i = 0; i < order.size(); ++i) {
    all.raw += sizes[i].raw;
    all.stored += sizes[i].stored;
    if (verbose) {
      text += fmt::format("{:.4f} {} of {} bytes: {}\n", sizes[i].ratio(), sizes[i].stored,
                          sizes[i].raw, order[i].name);
    }
  }
  return print_now(text + fmt::format("{:.4f} {} of {} bytes: the whole trunk\n", all.ratio(),
                                      all.stored, all.raw));
}

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
        options.raw ? PackAs::kRaw : PackAs::kCoded,
        [&bar](std::uint64_t done, std::uint64_t total) { bar.update(done, total); }));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  K3_ASSIGN(const UnitTable table, open_packed_trunk(folder, checkpoint));
  fmt::print("{}: {} bytes in {} units, the largest {} bytes, {:.2f} GB/s\n",
             (folder / kPackedTrunkFile).string(), table.pass_bytes(), table.units.size(),
             table.largest_unit_bytes(),
             static_cast<double>(table.pass_bytes()) / 1e9 / seconds.count());
  return print_sizes(table, trunk_order(checkpoint.config()), options.verbose);
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
  command->add_flag("--raw", options->raw, "keep bf16 as it is instead of coding it in 12 bits");
  command->add_flag("-v,--verbose", options->verbose, "how far each tensor was coded");
  command->add_option("--layers", options->layers, "only the first N layers of a partial download");
  command->callback([options, &action] { action = [options] { return run_pack(*options); }; });
}

}  // namespace k3::cli
