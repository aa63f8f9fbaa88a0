// The k3-experts process behind its flags: index, arena, reader, cache, server.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/arena/arena.h"
#include "common/arena/slot_pool.h"
#include "common/base/result.h"
#include "common/checkpoint/expert_index.h"
#include "common/ipc/event_loop.h"
#include "common/ipc/server.h"
#include "common/storage/read_engine.h"
#include "services/experts/cache_plan.h"
#include "services/experts/expert_cache.h"
#include "services/experts/expert_trace.h"

namespace k3::experts {

// Serves one checkpoint's routed experts in `run_dir` for as long as it lives. All on the loop's
// thread.
class ExpertsService {
 public:
  struct Options {
    std::filesystem::path run_dir;
    std::filesystem::path model;                // checkpoint directory
    std::optional<std::filesystem::path> work;  // base of work_folder()
    double cache_gb = 1;                        // 10^9 bytes
    std::optional<int> layers;
    std::size_t io_threads = 8;
    std::string policy{kDefaultPolicy};          // a name make_policy() knows
    std::optional<std::filesystem::path> trace;  // every accepted fetch is added to this file
  };

  // What create() opens before there is a service: also all that a replay needs.
  struct Parts {
    ExpertIndex index;
    ExpertCache::Shape shape;
    CachePlan plan;
    Arena arena;
    std::unique_ptr<ReadEngine> engine;
    std::vector<std::uint32_t> files;           // engine's number of each shard of the index
    std::unique_ptr<ReplacementPolicy> policy;  // until a cache takes it
  };

  static Result<Parts> open(const Options& options);

  // Opens everything and binds the endpoint. check_plan refuses an arena beyond the usable memory
  // before it is allocated. `loop` outlives the service.
  static Result<std::unique_ptr<ExpertsService>> create(ipc::EventLoop& loop,
                                                        const Options& options);
  ~ExpertsService();

 private:
  ExpertsService(ipc::EventLoop& loop, Parts parts);

  void on_message(ipc::Server::ClientId client, const ipc::Envelope& envelope);
  void on_reads_done();
  void record(const ipc::Envelope& envelope, const ipc::Fetch& fetch);
  ipc::Arrived arrived_message(std::uint64_t batch,
                               const std::vector<ExpertCache::Arrival>& arrivals) const;
  ipc::ExpertsDescription description() const;
  ipc::Stats stats() const;

  ipc::EventLoop& loop_;
  Parts parts_;
  SlotPool pool_;
  ExpertCache cache_;
  std::uint64_t bytes_read_ = 0;
  std::optional<TraceWriter> trace_;
  ipc::EventLoop::SourceId done_source_ = 0;
  std::unique_ptr<ipc::Server> server_;
};

// The job that fills the slot of `pool` which the cache chose. The buffers are the pool's.
ReadJob read_job(const ExpertsService::Parts& parts, const SlotPool& pool,
                 const ExpertCache::Read& read);

}  // namespace k3::experts
