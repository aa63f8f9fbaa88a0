#include "services/experts/experts_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/work_folder.h"
#include "common/ipc/run_dir.h"
#include "common/observe/memory.h"
#include "common/observe/spans.h"

namespace k3::experts {
namespace {

constexpr std::uint32_t kRegion = 0;

Result<ExpertIndex> open_index(const ExpertsService::Options& options,
                               const Checkpoint& checkpoint) {
  const std::filesystem::path directory = work_folder(options.work, checkpoint);
  const std::filesystem::path file = directory / kExpertIndexFile;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    std::string command = "k3 index --model " + options.model.string();
    if (options.work) command += " --work " + options.work->string();
    if (options.layers) command += fmt::format(" --layers {}", *options.layers);
    return fail(ErrorCode::kUsage, "{}: no expert index; run: {}", file.string(), command);
  }
  return read_expert_index(directory, checkpoint);
}

}  // namespace

Result<ExpertsService::Parts> ExpertsService::open(const Options& options) {
  K3_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options.model, {options.layers}));
  K3_ASSIGN(ExpertIndex index, open_index(options, checkpoint));
  const auto layers = static_cast<std::uint32_t>(index.layers);
  const auto dense_layers = static_cast<std::uint32_t>(index.dense_layers);
  // With dense layers alone there is nothing to fetch, but still a service to talk to.
  const ExpertCache::Shape shape{std::max(layers, dense_layers), dense_layers,
                                 static_cast<std::uint32_t>(index.experts)};
  K3_ASSIGN(const CachePlan plan,
            plan_cache(std::max(shape.total(), 1u), index.expert_bytes(), options.cache_gb));
  K3_ASSIGN(std::unique_ptr<ReplacementPolicy> policy,
            make_policy(options.policy, shape.layers - shape.dense_layers, shape.experts));
  K3_ASSIGN(std::unique_ptr<ReadEngine> engine, ReadEngine::create({options.io_threads}));
  std::vector<std::uint32_t> files;
  for (const std::filesystem::path& path : index.shards) {
    K3_ASSIGN(files.emplace_back(), engine->add_file(path));
  }
  K3_TRY(check_plan({{"expert arena", plan.arena_bytes()}}, read_memory_limits()));
  K3_ASSIGN(Arena arena, Arena::create("k3-experts", plan.arena_bytes()));
  return Parts{std::move(index), shape, plan, std::move(arena), std::move(engine), std::move(files),
               std::move(policy)};
}

Result<std::unique_ptr<ExpertsService>> ExpertsService::create(ipc::EventLoop& loop,
                                                               const Options& options) {
  K3_TRY(ipc::prepare_run_dir(options.run_dir));
  K3_ASSIGN(Parts parts, open(options));
  std::unique_ptr<ExpertsService> service(new ExpertsService(loop, std::move(parts)));
  ExpertsService* self = service.get();
  if (options.trace) {
    K3_ASSIGN(self->trace_, TraceWriter::open(*options.trace));
  }
  const Arena& arena = self->parts_.arena;
  ipc::Server::Options server{"experts",
                              self->parts_.index.fingerprint,
                              {{kRegion, arena.generation(), arena.data().size(), arena.fd()}}};
  ipc::Server::Callbacks callbacks{
      [self](ipc::Server::ClientId client, const ipc::Envelope& envelope) {
        self->on_message(client, envelope);
      },
      [self](ipc::Server::ClientId client) { self->cache_.drop(client); },
      [self] { return self->stats(); }};
  K3_ASSIGN(self->server_,
            ipc::Server::bind(loop, options.run_dir, std::move(server), std::move(callbacks)));
  spdlog::info("ready units={} slots={} arena_bytes={} expert_bytes={}", self->parts_.shape.total(),
               self->pool_.slots(), arena.data().size(), self->parts_.index.expert_bytes());
  return service;
}

ExpertsService::ExpertsService(ipc::EventLoop& loop, Parts parts)
    : loop_(loop),
      parts_(std::move(parts)),
      pool_(parts_.arena.data(), parts_.plan.slots, parts_.plan.slot_bytes),
      cache_(parts_.shape, pool_, std::move(parts_.policy),
             {[this](const ExpertCache::Read& read) {
                parts_.engine->submit(read_job(parts_, pool_, read));
              },
              [this](std::uint64_t client, std::uint64_t batch,
                     const std::vector<ExpertCache::Arrival>& arrivals) {
                server_->send(client, arrived_message(batch, arrivals));
              },
              [this](std::uint64_t client, std::uint64_t batch, ExpertId id, const Error& error) {
                server_->send(client, ipc::ExpertFailed{batch, parts_.shape.layer_of(id),
                                                        parts_.shape.expert_of(id), error});
              }}),
      done_source_(loop.watch(parts_.engine->done_fd(), [this] { on_reads_done(); })) {}

ExpertsService::~ExpertsService() {
  loop_.remove(done_source_);
  server_.reset();
  parts_.engine.reset();  // joins the readers while their buffers still exist
}

void ExpertsService::on_message(ipc::Server::ClientId client, const ipc::Envelope& envelope) {
  spans::set_trace_id(envelope.header.trace_id);
  Status status;
  if (std::holds_alternative<ipc::DescribeExperts>(envelope.body)) {
    server_->send(client, description(), envelope.header.sequence);
  } else if (const auto* fetch = std::get_if<ipc::Fetch>(&envelope.body)) {
    status = cache_.fetch(client, *fetch);
    if (status) record(envelope, *fetch);
  } else if (const auto* release = std::get_if<ipc::BatchRelease>(&envelope.body)) {
    if (!cache_.release(client, release->batch)) {
      spdlog::warn("release_unknown client={} batch={}", client, release->batch);
    }
  } else if (const auto* hint = std::get_if<ipc::Hint>(&envelope.body)) {
    status = cache_.hint(*hint);
  } else {
    status = fail(ErrorCode::kUsage, "k3-experts does not serve this kind of message");
  }
  if (!status) {
    spdlog::warn("refused client={} error=\"{}\"", client, status.error().message);
    server_->send(client, ipc::ErrorReply{std::move(status.error())}, envelope.header.sequence);
  }
}

void ExpertsService::on_reads_done() {
  std::vector<ExpertCache::ReadEnd> ends;
  for (ReadDone& done : parts_.engine->take_done()) {
    if (done.status) {
      bytes_read_ += done.bytes;
    } else {
      spdlog::warn("read_failed error=\"{}\"", done.status.error().message);
    }
    ends.push_back({static_cast<ExpertId>(done.id), std::move(done.status)});
  }
  cache_.reads_ended(ends);
}

// A fetch belongs to a token while that is decoded, and to none during prefill.
void ExpertsService::record(const ipc::Envelope& envelope, const ipc::Fetch& fetch) {
  if (!trace_) return;
  const bool decode = envelope.header.trace_id != 0;
  const Status written = trace_->add(
      {decode ? TracePhase::kDecode : TracePhase::kPrefill, fetch.layer, fetch.experts});
  if (written) return;
  spdlog::error("trace_ended error=\"{}\"", written.error().message);
  trace_.reset();
}

ipc::Arrived ExpertsService::arrived_message(
    std::uint64_t batch, const std::vector<ExpertCache::Arrival>& arrivals) const {
  ipc::Arrived message{batch, {}};
  for (const ExpertCache::Arrival& arrival : arrivals) {
    ipc::ArrivedExpert& expert = message.experts.emplace_back();
    expert.expert = parts_.shape.expert_of(arrival.id);
    expert.source = arrival.origin;
    std::uint64_t offset = pool_.offset(arrival.slot);
    for (const std::uint64_t bytes : parts_.index.part_bytes) {
      expert.parts.push_back({kRegion, parts_.arena.generation(), offset, bytes});
      offset += bytes;
    }
  }
  return message;
}

ipc::ExpertsDescription ExpertsService::description() const {
  return {parts_.shape.layers, parts_.shape.experts, parts_.plan.slots, parts_.index.expert_bytes(),
          parts_.arena.data().size()};
}

ipc::Stats ExpertsService::stats() const {
  const ExpertCache::Counters counters = cache_.counters();
  return {{{"bytes_read", bytes_read_},
           {"fetches", counters.fetches},
           {"hits", counters.hits},
           {"prefetched_hits", counters.prefetched_hits},
           {"misses", counters.misses},
           {"hints_read", counters.hints_read},
           {"hints_dropped", counters.hints_dropped},
           {"evictions", counters.evictions},
           {"read_errors", counters.read_errors},
           {"leases_now", counters.leases_now},
           {"fetches_waiting", counters.fetches_waiting},
           {"slots", parts_.plan.slots},
           {"arena_bytes", parts_.arena.data().size()}}};
}

ReadJob read_job(const ExpertsService::Parts& parts, const SlotPool& pool,
                 const ExpertCache::Read& read) {
  const std::uint32_t layer = parts.shape.layer_of(read.id);
  const std::uint32_t expert = parts.shape.expert_of(read.id);
  const ExpertLocation& location =
      parts.index.at(static_cast<int>(layer), static_cast<int>(expert));
  const std::span<std::byte> slot = pool.bytes(read.slot);
  ReadJob job;
  job.id = read.id;
  job.label = fmt::format("layer {} expert {}", layer, expert);
  job.checksum = location.checksum;
  job.urgent = read.urgent;
  for (const ExpertExtent& extent : location.extents) {
    job.extents.push_back({parts.files[extent.shard], extent.offset,
                           slot.subspan(extent.slot_offset, extent.length)});
  }
  return job;
}

}  // namespace k3::experts
