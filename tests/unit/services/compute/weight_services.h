// The real weight services in the test's own event loop, killed and restarted at will.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/checkpoint/expert_index.h"
#include "common/ipc/event_loop.h"
#include "common/ipc/run_dir.h"
#include "services/experts/experts_service.h"
#include "services/trunk/trunk_service.h"
#include "tests/unit/support/temp_dir.h"
#include "tests/unit/support/tiny_checkpoint.h"

namespace k3::compute::test {

// Budgets of one run of the two services.
struct Budgets {
  double trunk_gb = 1;
  double unit_mb = 0.03;
  double cache_gb = 1;
};
// One ring slot of the largest unit; two experts at once, of a demand of three a row.
inline constexpr Budgets kSmallest{.trunk_gb = 36e-6, .unit_mb = 0.03, .cache_gb = 13e-6};

class WeightServices {
 public:
  // Serves the checkpoint in `model`; its expert index is built in a folder of the test's own.
  explicit WeightServices(std::filesystem::path model) : model_(std::move(model)) {
    const auto checkpoint = Checkpoint::open(model_, {});
    if (!checkpoint) throw std::runtime_error(checkpoint.error().message);
    const auto index = build_expert_index(*checkpoint, true, [](auto, auto) {});
    if (!index) throw std::runtime_error(index.error().message);
    std::filesystem::create_directories(work_);
    const Status written = write_expert_index(*index, work_);
    if (!written) throw std::runtime_error(written.error().message);
    config_ = checkpoint->config();
    fingerprint_ = checkpoint->fingerprint();
    const Status made = ipc::prepare_run_dir(run_dir());
    if (!made) throw std::runtime_error(made.error().message);
  }

  void start(const Budgets& budgets) {
    start_trunk(budgets);
    start_experts(budgets);
  }
  void start_trunk(const Budgets& budgets) {
    trunk_.reset();
    auto made = trunk::TrunkService::create(loop, {.run_dir = run_dir(),
                                                   .model = model_,
                                                   .packed_trunk = {},
                                                   .trunk_gb = budgets.trunk_gb,
                                                   .unit_mb = budgets.unit_mb,
                                                   .layers = {},
                                                   .io_threads = 2});
    if (!made) throw std::runtime_error(made.error().message);
    trunk_ = std::move(*made);
  }
  void start_experts(const Budgets& budgets) {
    experts_.reset();
    auto made = experts::ExpertsService::create(loop, {.run_dir = run_dir(),
                                                       .model = model_,
                                                       .work = work_,
                                                       .cache_gb = budgets.cache_gb,
                                                       .layers = {},
                                                       .io_threads = 2,
                                                       .trace = {}});
    if (!made) throw std::runtime_error(made.error().message);
    experts_ = std::move(*made);
  }

  std::filesystem::path run_dir() const { return folder_ / "run"; }
  const ModelConfig& config() const { return config_; }
  const std::string& fingerprint() const { return fingerprint_; }

  ipc::EventLoop loop;

 private:
  k3::test::TempDir temp_;
  std::filesystem::path folder_ = temp_.path();
  std::filesystem::path model_;
  std::filesystem::path work_ = folder_ / "work";
  ModelConfig config_;
  std::string fingerprint_;
  std::unique_ptr<trunk::TrunkService> trunk_;
  std::unique_ptr<experts::ExpertsService> experts_;
};

}  // namespace k3::compute::test
