// The k3-experts-pagecache process behind its flags: files, loader, batches, server.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/result.h"
#include "common/ipc/event_loop.h"
#include "common/ipc/server.h"
#include "services/experts_pagecache/open_batches.h"
#include "services/experts_pagecache/page_loader.h"
#include "services/experts_pagecache/shard_files.h"

namespace k3::pagecache {

// Serves one checkpoint's routed experts in `run_dir` for as long as it lives. All on the loop's
// thread.
class PageCacheService {
 public:
  struct Options {
    std::filesystem::path run_dir;
    std::filesystem::path model;  // checkpoint directory
    std::optional<int> layers;
    std::size_t io_threads = 8;
  };

  // `loop` outlives the service.
  static Result<std::unique_ptr<PageCacheService>> create(ipc::EventLoop& loop,
                                                          const Options& options);
  ~PageCacheService();

 private:
  using ClientId = ipc::Server::ClientId;

  // What the loader works at; without a batch it is a hint.
  struct Job {
    ExpertId expert = 0;
    std::optional<OpenBatches::Key> batch;
  };
  struct Counters {
    std::uint64_t fetches = 0;
    std::uint64_t hits = 0;
    std::uint64_t prefetched_hits = 0;
    std::uint64_t misses = 0;
    std::uint64_t hints_read = 0;
    std::uint64_t read_errors = 0;
    std::uint64_t bytes_read = 0;
  };

  PageCacheService(ipc::EventLoop& loop, ShardFiles files, std::unique_ptr<PageLoader> loader);
  void on_message(ClientId client, const ipc::Envelope& envelope);
  Status fetch(ClientId client, const ipc::Fetch& request);
  Status hint(const ipc::Hint& request);
  Status check(std::uint32_t layer, const std::vector<std::uint32_t>& experts) const;
  ExpertId id_of(std::uint32_t layer, std::uint32_t expert) const;
  void submit(const Job& job, bool urgent);
  void on_loaded();
  // Counts how the expert was found.
  ipc::ExpertOrigin count_demand(ExpertId expert, std::uint64_t bytes_absent);
  Error failure(ExpertId expert, std::size_t run) const;
  ipc::ExpertsDescription description() const;
  ipc::Stats stats() const;

  ipc::EventLoop& loop_;
  ShardFiles files_;
  std::unique_ptr<PageLoader> loader_;  // before the files go
  OpenBatches batches_;
  std::map<std::uint64_t, Job> jobs_;
  std::uint64_t next_job_ = 0;
  std::vector<bool> hinted_;  // read for a hint and not fetched yet, by ExpertId
  Counters counters_;
  ipc::EventLoop::SourceId done_source_ = 0;
  std::unique_ptr<ipc::Server> server_;
};

}  // namespace k3::pagecache
