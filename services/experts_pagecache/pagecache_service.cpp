#include "services/experts_pagecache/pagecache_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <variant>

#include "common/checkpoint/checkpoint.h"
#include "common/ipc/run_dir.h"

namespace k3::pagecache {

Result<std::unique_ptr<PageCacheService>> PageCacheService::create(ipc::EventLoop& loop,
                                                                   const Options& options) {
  K3_TRY(ipc::prepare_run_dir(options.run_dir));
  K3_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options.model, {options.layers}));
  K3_ASSIGN(ShardFiles files, ShardFiles::open(checkpoint));
  K3_ASSIGN(std::unique_ptr<PageLoader> loader, PageLoader::create(options.io_threads));
  std::unique_ptr<PageCacheService> service(
      new PageCacheService(loop, std::move(files), std::move(loader)));
  PageCacheService* self = service.get();
  ipc::Server::Callbacks callbacks{
      [self](ClientId client, const ipc::Envelope& it) { self->on_message(client, it); },
      [self](ClientId client) { self->batches_.close_all(client); },
      [self] { return self->stats(); }};
  K3_ASSIGN(self->server_,
            ipc::Server::bind(loop, options.run_dir,
                              {"experts", checkpoint.fingerprint(), self->files_.regions()},
                              std::move(callbacks)));
  spdlog::info("ready experts={} files={} expert_bytes={}", self->files_.shape().total(),
               self->files_.regions().size(), self->files_.expert_bytes());
  return service;
}

PageCacheService::PageCacheService(ipc::EventLoop& loop, ShardFiles files,
                                   std::unique_ptr<PageLoader> loader)
    : loop_(loop),
      files_(std::move(files)),
      loader_(std::move(loader)),
      hinted_(files_.shape().total()),
      done_source_(loop.watch(loader_->done_fd(), [this] { on_loaded(); })) {}

PageCacheService::~PageCacheService() { loop_.remove(done_source_); }

void PageCacheService::on_message(ClientId client, const ipc::Envelope& envelope) {
  Status status;
  if (std::holds_alternative<ipc::DescribeExperts>(envelope.body)) {
    server_->send(client, description(), envelope.header.sequence);
  } else if (const auto* request = std::get_if<ipc::Fetch>(&envelope.body)) {
    status = fetch(client, *request);
  } else if (const auto* release = std::get_if<ipc::BatchRelease>(&envelope.body)) {
    batches_.close(client, release->batch);
  } else if (const auto* ahead = std::get_if<ipc::Hint>(&envelope.body)) {
    status = hint(*ahead);
  } else {
    status = fail(ErrorCode::kUsage, "k3-experts-pagecache does not serve this kind of message");
  }
  if (!status) {
    spdlog::warn("refused client={} error=\"{}\"", client, status.error().message);
    server_->send(client, ipc::ErrorReply{std::move(status.error())}, envelope.header.sequence);
  }
}

Status PageCacheService::fetch(ClientId client, const ipc::Fetch& request) {
  K3_TRY(check(request.layer, request.experts));
  K3_ASSIGN(const OpenBatches::Key batch, batches_.open(client, request.batch));
  ++counters_.fetches;
  for (const std::uint32_t expert : request.experts) {
    submit({id_of(request.layer, expert), batch}, request.urgency == 0);
  }
  return {};
}

Status PageCacheService::hint(const ipc::Hint& request) {
  K3_TRY(check(request.layer, request.experts));
  for (const std::uint32_t expert : request.experts) {
    submit({id_of(request.layer, expert), {}}, false);
  }
  return {};
}

Status PageCacheService::check(std::uint32_t layer,
                               const std::vector<std::uint32_t>& experts) const {
  const Shape& shape = files_.shape();
  if (layer < shape.dense_layers || layer >= shape.layers) {
    return fail(ErrorCode::kUsage, "layer {}: layers {}..{} have routed experts", layer,
                shape.dense_layers, static_cast<std::int64_t>(shape.layers) - 1);
  }
  std::unordered_set<std::uint32_t> seen;
  for (const std::uint32_t expert : experts) {
    if (expert >= shape.experts) {
      return fail(ErrorCode::kUsage, "layer {} expert {}: the layer has experts 0..{}", layer,
                  expert, shape.experts - 1);
    }
    if (!seen.insert(expert).second) {
      return fail(ErrorCode::kUsage, "layer {} expert {}: asked for twice in one list", layer,
                  expert);
    }
  }
  return {};
}

ExpertId PageCacheService::id_of(std::uint32_t layer, std::uint32_t expert) const {
  return (layer - files_.shape().dense_layers) * files_.shape().experts + expert;
}

void PageCacheService::submit(const Job& job, bool urgent) {
  const std::uint64_t id = next_job_++;
  jobs_[id] = job;
  LoadJob load{id, {}, urgent};
  for (const FileRun& run : files_.runs(job.expert)) load.runs.push_back(run.bytes);
  loader_->submit(std::move(load));
}

void PageCacheService::on_loaded() {
  std::map<OpenBatches::Key, std::vector<ipc::ArrivedExpert>> arrivals;
  for (const LoadDone& done : loader_->take_done()) {
    const Job job = jobs_.extract(done.id).mapped();
    counters_.bytes_read += done.bytes_absent;
    if (done.failed_run) {
      ++counters_.read_errors;
      spdlog::warn("read_failed error=\"{}\"", failure(job.expert, *done.failed_run).message);
    }
    if (!job.batch) {
      hinted_[job.expert] = !done.failed_run;
      ++counters_.hints_read;
      continue;
    }
    // Counted whether its batch is still open or not: it was demanded.
    const ipc::ExpertOrigin origin = count_demand(job.expert, done.bytes_absent);
    const OpenBatches::Batch* batch = batches_.find(*job.batch);
    if (batch == nullptr) continue;
    const Shape& shape = files_.shape();
    if (done.failed_run) {
      server_->send(batch->client, ipc::ExpertFailed{batch->number, shape.layer_of(job.expert),
                                                     shape.expert_of(job.expert),
                                                     failure(job.expert, *done.failed_run)});
    } else {
      arrivals[*job.batch].push_back(
          {shape.expert_of(job.expert), origin, files_.parts(job.expert)});
    }
  }
  for (auto& [key, experts] : arrivals) {
    OpenBatches::Batch* batch = batches_.find(key);
    batch->leases += experts.size();
    server_->send(batch->client, ipc::Arrived{batch->number, std::move(experts)});
  }
}

ipc::ExpertOrigin PageCacheService::count_demand(ExpertId expert, std::uint64_t bytes_absent) {
  const bool hinted = hinted_[expert];
  hinted_[expert] = false;
  if (bytes_absent > 0) {
    ++counters_.misses;
    return ipc::ExpertOrigin::kMiss;
  }
  ++(hinted ? counters_.prefetched_hits : counters_.hits);
  return hinted ? ipc::ExpertOrigin::kPrefetched : ipc::ExpertOrigin::kHit;
}

Error PageCacheService::failure(ExpertId expert, std::size_t run) const {
  const Shape& shape = files_.shape();
  return {ErrorCode::kWeights,
          fmt::format("layer {} expert {}: {}: cannot be read, or the file was cut short",
                      shape.layer_of(expert), shape.expert_of(expert),
                      files_.describe(files_.runs(expert)[run]))};
}

ipc::ExpertsDescription PageCacheService::description() const {
  const Shape& shape = files_.shape();
  return {shape.layers, shape.experts, std::max(shape.total(), 1u), files_.expert_bytes(), 0};
}

ipc::Stats PageCacheService::stats() const {
  return {{{"bytes_read", counters_.bytes_read},
           {"fetches", counters_.fetches},
           {"hits", counters_.hits},
           {"prefetched_hits", counters_.prefetched_hits},
           {"misses", counters_.misses},
           {"hints_read", counters_.hints_read},
           {"read_errors", counters_.read_errors},
           {"leases_now", batches_.leases()},
           {"slots", std::max(files_.shape().total(), 1u)},
           {"arena_bytes", 0}}};
}

}  // namespace k3::pagecache
