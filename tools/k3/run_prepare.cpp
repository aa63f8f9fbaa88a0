#include "tools/k3/run_prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "common/checkpoint/expert_index.h"
#include "common/checkpoint/packed_trunk.h"
#include "common/checkpoint/unit_table.h"
#include "common/checkpoint/work_folder.h"
#include "tools/k3/output_folder.h"
#include "tools/k3/progress_bar.h"

namespace k3::cli {
namespace {

// Slot sizes as the weight services round them.
constexpr std::uint64_t kTrunkSlotAlign = 4096;
constexpr std::uint64_t kExpertSlotAlign = 64;

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t step) {
  return (bytes + step - 1) / step * step;
}

// Bytes, cut off as the services do; a value beyond all memory is as good as 1 EB.
std::optional<std::uint64_t> scaled(std::optional<double> value, double unit) {
  if (!value) return std::nullopt;
  return static_cast<std::uint64_t>(std::min(*value * unit, 1e18));
}

// The folder of the packed trunk: --trunk, else the work folder when `k3 pack` wrote it there.
std::optional<std::filesystem::path> packed_trunk_dir(const RunOptions& options,
                                                      const std::filesystem::path& work) {
  if (options.trunk) return std::filesystem::absolute(*options.trunk);
  std::error_code ignored;
  if (std::filesystem::exists(work / kPackedTrunkFile, ignored)) return work;
  return std::nullopt;
}

PlanInputs plan_inputs(const RunOptions& options, const Checkpoint& checkpoint,
                       const UnitTable& units, std::uint64_t positions) {
  const ModelConfig& config = checkpoint.config();
  const int moe_layers = std::max(0, config.layers - config.dense_layers);
  PlanInputs inputs;
  inputs.config = config;
  inputs.trunk_units = units.units.size();
  inputs.trunk_slot_bytes = round_up(units.largest_unit_bytes(), kTrunkSlotAlign);
  // The kernel's page cache takes what is left, and gives it back.
  const bool in_page_cache = options.experts == kPageCacheBinary;
  inputs.experts = in_page_cache ? 0 : static_cast<std::uint64_t>(moe_layers) * config.experts;
  inputs.expert_slot_bytes = round_up(expert_bytes(config), kExpertSlotAlign);
  inputs.positions = positions;
  inputs.trunk_pass_bytes = units.pass_bytes();
  inputs.preset = options.preset;
  if (options.chunk) inputs.chunk = static_cast<std::uint64_t>(*options.chunk);
  inputs.trunk_budget = scaled(options.trunk_gb, 1e9);
  inputs.expert_budget = scaled(options.cache_gb, 1e9);
  return inputs;
}

// Decimal gigabytes for a service, which multiplies and cuts: half a byte more, so that rounding
// never costs a budget of exactly n slots one of them.
std::string as_gigabytes(std::uint64_t bytes) { return fmt::format("{}.5e-9", bytes); }

}  // namespace

PipelineSettings pipeline_settings(const RunOptions& options, const PlannedModel& model) {
  PipelineSettings settings = {{"model", model.checkpoint.directory().string()},
                               {"trunk_gb", as_gigabytes(model.plan.trunk_budget)},
                               {"experts", options.experts},
                               {"cache_gb", as_gigabytes(model.plan.expert_budget)},
                               {"max_positions", fmt::format("{}", model.plan.positions)}};
  const auto add = [&settings](const char* name, const auto& value) {
    if (value) settings.emplace_back(name, fmt::format("{}", *value));
  };
  if (options.work) {
    settings.emplace_back("work", std::filesystem::absolute(*options.work).string());
  }
  if (options.record) {
    settings.emplace_back("record", std::filesystem::absolute(*options.record).string());
  }
  if (options.expert_trace) {
    settings.emplace_back("expert_trace",
                          std::filesystem::absolute(*options.expert_trace).string());
  }
  if (model.trunk) settings.emplace_back("trunk", model.trunk->string());
  add("threads", options.threads);
  add("chunk", options.chunk);
  add("unit_mb", options.unit_mb);
  add("record_max_mb", options.record_max_mb);
  add("layers", options.layers);
  add("cache_policy", options.cache_policy);
  add("isa", options.isa);
  add("mla_norm_eps", options.mla_norm_eps);
  return settings;
}

Status ensure_expert_index(const Checkpoint& checkpoint, const std::filesystem::path& work) {
  std::error_code error;
  if (std::filesystem::exists(work / kExpertIndexFile, error)) {
    K3_ASSIGN([[maybe_unused]] const ExpertIndex found, read_expert_index(work, checkpoint));
    return {};
  }
  ProgressBar bar("expert index");
  K3_ASSIGN(const ExpertIndex index,
            build_expert_index(checkpoint, false, [&bar](std::uint64_t done, std::uint64_t total) {
              bar.update(done, total);
            }));
  K3_TRY(make_writable(work, "--work"));
  return write_expert_index(index, work);
}

Result<PlannedModel> plan_model(const RunOptions& options, std::uint64_t positions,
                                const MemoryLimits& limits) {
  const std::filesystem::path model = std::filesystem::absolute(*options.model);
  K3_ASSIGN(Checkpoint checkpoint, Checkpoint::open(model, {.layers = options.layers}));
  const auto trunk = packed_trunk_dir(options, work_folder(options.work, checkpoint));
  const std::uint64_t unit_bytes = scaled(options.unit_mb, 1e6).value_or(kDefaultUnitBytes);
  K3_ASSIGN(const UnitTable units, trunk ? open_packed_trunk(*trunk, checkpoint)
                                         : unit_table_over_shards(checkpoint, unit_bytes));
  PlanInputs inputs = plan_inputs(options, checkpoint, units, positions);
  K3_ASSIGN(RunPlan plan, plan_run(inputs, limits));
  K3_TRY(check_plan(plan.lines, limits));
  return PlannedModel{std::move(checkpoint), trunk, std::move(inputs), std::move(plan)};
}

Result<PlannedModel> prepare_model(const RunOptions& options, const Prompt& prompt,
                                   const MemoryLimits& limits) {
  if (options.expert_trace && options.experts != kExpertsBinary) {
    return fail(ErrorCode::kUsage, "--trace-experts: only {} records a trace, not {}",
                kExpertsBinary, options.experts);
  }
  if (options.cache_policy && options.experts != kExpertsBinary) {
    return fail(ErrorCode::kUsage, "--cache-policy: only {} has policies, not {}", kExpertsBinary,
                options.experts);
  }
  const std::uint64_t positions = prompt.most_ids() + options.max_tokens;
  K3_ASSIGN(PlannedModel model, plan_model(options, positions, limits));
  const auto vocab = static_cast<std::uint32_t>(model.checkpoint.config().vocab);
  K3_TRY(check_ids(prompt.ids, vocab, "--ids"));
  K3_TRY(check_ids(options.stop_ids, vocab, "--stop-id"));
  if (options.experts != kPageCacheBinary) {
    K3_TRY(ensure_expert_index(model.checkpoint, work_folder(options.work, model.checkpoint)));
  }
  return model;
}

}  // namespace k3::cli
