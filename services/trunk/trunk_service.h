// The k3-trunk process behind its flags: unit table, arena, reader, server.
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
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/unit_table.h"
#include "common/ipc/event_loop.h"
#include "common/ipc/server.h"
#include "common/storage/read_engine.h"
#include "services/trunk/embedding_rows.h"
#include "services/trunk/plan.h"
#include "services/trunk/streamer.h"

namespace k3::trunk {

// Serves one checkpoint's trunk in `run_dir` for as long as it lives. All on the loop's thread.
class TrunkService {
 public:
  struct Options {
    std::filesystem::path run_dir;
    std::filesystem::path model;                        // checkpoint directory
    std::optional<std::filesystem::path> packed_trunk;  // directory of trunk.k3t; else the shards
    double trunk_gb = 1;                                // 10^9 bytes
    double unit_mb = 256;                               // 10^6 bytes; of units over the shards
    std::optional<int> layers;
    std::size_t io_threads = 8;
  };

  // Opens everything, starts reading ahead, binds the endpoint. check_plan refuses an arena beyond
  // the usable memory before it is allocated. `loop` outlives the service.
  static Result<std::unique_ptr<TrunkService>> create(ipc::EventLoop& loop, const Options& options);
  ~TrunkService();

 private:
  // What create() opens before there is a service.
  struct Parts {
    Checkpoint checkpoint;
    UnitTable table;
    TrunkPlan plan;
    Arena arena;
    EmbeddingRows rows;
    std::unique_ptr<ReadEngine> engine;
    std::vector<std::uint32_t> files;  // engine's number of each file of the table
  };

  static Result<Parts> open(const Options& options);
  TrunkService(ipc::EventLoop& loop, Parts parts);

  void on_message(ipc::Server::ClientId client, const ipc::Envelope& envelope);
  void on_reads_done();
  void submit(const Streamer::Read& read);
  std::string label(std::uint32_t unit) const;
  ipc::UnitReady ready_message(std::uint64_t pass, std::uint32_t unit, std::size_t slot) const;
  ipc::TrunkDescription description() const;
  ipc::Stats stats() const;
  void reply_error(ipc::Server::ClientId client, std::uint64_t sequence, Error error);

  ipc::EventLoop& loop_;
  Parts parts_;
  std::vector<TrunkTensor> order_;
  SlotPool pool_;
  Streamer streamer_;
  std::uint64_t bytes_read_ = 0;
  std::uint64_t rows_read_ = 0;
  std::uint64_t row_errors_ = 0;
  ipc::EventLoop::SourceId done_source_ = 0;
  std::unique_ptr<ipc::Server> server_;
};

// The units the service reads: those of the packed trunk, or of the shards cut by unit_mb. Errors
// as open_packed_trunk and unit_table_over_shards; kUsage for an impossible unit size.
Result<UnitTable> open_unit_table(const TrunkService::Options& options,
                                  const Checkpoint& checkpoint);

}  // namespace k3::trunk
