// The compute process: a server for generation requests over the two weight services.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/checkpoint/model_config.h"
#include "common/ipc/event_loop.h"
#include "common/ipc/messages.h"
#include "common/ipc/server.h"
#include "common/kernels/matrix.h"
#include "common/observe/memory.h"
#include "services/compute/generator.h"
#include "services/compute/model.h"
#include "services/compute/recorder.h"
#include "services/compute/remote_experts.h"
#include "services/compute/remote_trunk.h"

namespace k3::compute {

// Requests of all clients wait in one queue and run one at a time. While one runs, the loop is
// turned between layers and while weights are awaited, so that cancellations, deaths, signals and
// questions are noticed within a layer. Everything on the loop's thread, except the kernels' team.
class ComputeService {
 public:
  struct Options {
    std::filesystem::path run_dir;
    int threads = 0;  // 0: usable_cores()
    std::size_t chunk = 32;
    std::string isa;  // empty: the best
    float mla_norm_eps = 1e-6f;
    std::uint32_t max_positions = 4096;
    std::optional<std::filesystem::path> record;  // where every pass is recorded
    double record_max_mb = 1000;                  // 10^6 bytes, positive
  };

  // Connects to both weight services, however long they take to start, and binds the endpoint.
  // `loop` outlives the service; loop.stop() ends a generation at its next layer. Errors: kUsage
  // for the instruction set, kIncompatible when the weight services disagree, check_plan's refusal
  // before any buffer is allocated, kStopped.
  static Result<std::unique_ptr<ComputeService>> create(ipc::EventLoop& loop,
                                                        const Options& options);

  // Serves until the loop is stopped or a weight service can never serve us again (its error).
  Status run();

 private:
  using ClientId = ipc::Server::ClientId;

  struct Request {
    ClientId client = 0;
    std::uint64_t sequence = 0;  // of its Generate
    std::uint64_t trace_id = 0;
    ipc::Generate generate;
  };

  ComputeService(ipc::EventLoop& loop, const Options& options, const kernels::KernelTable& table,
                 int threads);
  Status connect();
  Status record(const ipc::TrunkDescription& trunk);
  Status bind();
  Status pump(std::chrono::milliseconds limit);

  void on_message(ClientId client, const ipc::Envelope& envelope);
  void on_disconnect(ClientId client);
  void serve_next();
  // The work from here on is for this token, counted from 1; 0: for the prefill.
  void set_token(std::uint64_t token);
  void finish_current(const Status& status);
  void reply_error(const Request& request, Error error);
  std::optional<Error> weights_failure() const;
  ipc::ComputeDescription description() const;
  // What one sequence of max_positions needs at most.
  std::vector<PlannedMemory> memory_plan() const;
  ipc::Stats stats() const;

  ipc::EventLoop& loop_;
  Options options_;
  kernels::Multiplier multiplier_;
  std::uint32_t model_layers_ = 0;
  ModelConfig config_;
  std::unique_ptr<RemoteTrunk> trunk_;
  std::unique_ptr<RemoteExperts> experts_;
  std::unique_ptr<Recorder> recorder_;  // null: nothing is recorded
  std::optional<Model> model_;
  std::optional<Generator> generator_;
  std::deque<Request> queue_;
  std::optional<Request> current_;
  bool cancelled_ = false;    // the current request, by its client
  bool client_gone_ = false;  // of the current request
  std::unique_ptr<ipc::Server> server_;
};

}  // namespace k3::compute
