// A model over the files of a checkpoint, read by the test's own process.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "common/checkpoint/expert_index.h"
#include "common/checkpoint/packed_trunk.h"
#include "common/kernels/select.h"
#include "services/compute/local_experts.h"
#include "services/compute/local_trunk.h"
#include "services/compute/model.h"

namespace k3::compute::test {

// value() throws where a step fails.
struct LocalModel {
  // The trunk comes from `packed`, or from the shards in units of 30 kB.
  LocalModel(const std::filesystem::path& directory, float mla_norm_eps, std::size_t max_rows,
             const std::optional<std::filesystem::path>& packed = {})
      : checkpoint(Checkpoint::open(directory, {}).value()), config(checkpoint.config()) {
    config.mla_norm_eps = mla_norm_eps;
    const auto table = packed ? open_packed_trunk(*packed, checkpoint)
                              : unit_table_over_shards(checkpoint, 30'000);
    trunk = LocalTrunk::open(checkpoint, table.value()).value();
    auto index = build_expert_index(checkpoint, true, [](auto, auto) {});
    experts = LocalExperts::open(config, std::move(index.value())).value();
    model.emplace(config, max_rows, multiplier, *trunk, *experts, [] { return Status{}; });
  }

  Checkpoint checkpoint;
  ModelConfig config;
  kernels::Multiplier multiplier{*kernels::supported_tables().front(), 1};
  std::unique_ptr<LocalTrunk> trunk;
  std::unique_ptr<LocalExperts> experts;
  std::optional<Model> model;
};

}  // namespace k3::compute::test
