#include "services/trunk/trunk_service.h"

#include <spdlog/spdlog.h>

#include <cmath>
#include <utility>
#include <variant>

#include "common/checkpoint/packed_trunk.h"
#include "common/ipc/run_dir.h"
#include "common/observe/memory.h"
#include "common/observe/spans.h"

namespace k3::trunk {
namespace {

constexpr std::uint32_t kRegion = 0;

}  // namespace

Result<UnitTable> open_unit_table(const TrunkService::Options& options,
                                  const Checkpoint& checkpoint) {
  if (options.packed_trunk) return open_packed_trunk(*options.packed_trunk, checkpoint);
  if (!(options.unit_mb > 0 && options.unit_mb <= 1e6)) {  // also refuses NaN
    return fail(ErrorCode::kUsage, "unit size {} MB: expected more than 0 and at most 1e6 MB",
                options.unit_mb);
  }
  return unit_table_over_shards(checkpoint,
                                static_cast<std::uint64_t>(std::llround(options.unit_mb * 1e6)));
}

Result<TrunkService::Parts> TrunkService::open(const Options& options) {
  K3_ASSIGN(Checkpoint checkpoint, Checkpoint::open(options.model, {options.layers}));
  K3_ASSIGN(UnitTable table, open_unit_table(options, checkpoint));
  K3_ASSIGN(TrunkPlan plan, plan_trunk(static_cast<std::uint32_t>(table.units.size()),
                                       table.largest_unit_bytes(), options.trunk_gb));
  K3_ASSIGN(std::unique_ptr<ReadEngine> engine, ReadEngine::create({options.io_threads}));
  std::vector<std::uint32_t> files;
  for (const std::filesystem::path& path : table.files) {
    K3_ASSIGN(files.emplace_back(), engine->add_file(path));
  }
  const TensorPlace* embedding = checkpoint.find(kEmbeddingName);
  if (embedding == nullptr) return fail(ErrorCode::kWeights, "{}: not found", kEmbeddingName);
  K3_ASSIGN(const std::uint32_t embedding_file,
            engine->add_file(checkpoint.shards().at(embedding->shard).path));
  K3_ASSIGN(EmbeddingRows rows,
            EmbeddingRows::create(*embedding, embedding_file, table.embedding_checksums));
  K3_TRY(check_plan({{"trunk arena", plan.arena_bytes()}}, read_memory_limits()));
  K3_ASSIGN(Arena arena, Arena::create("k3-trunk", plan.arena_bytes()));
  return Parts{std::move(checkpoint), std::move(table),  std::move(plan), std::move(arena),
               std::move(rows),       std::move(engine), std::move(files)};
}

Result<std::unique_ptr<TrunkService>> TrunkService::create(ipc::EventLoop& loop,
                                                           const Options& options) {
  K3_TRY(ipc::prepare_run_dir(options.run_dir));
  K3_ASSIGN(Parts parts, open(options));
  std::unique_ptr<TrunkService> service(new TrunkService(loop, std::move(parts)));
  TrunkService* self = service.get();
  const Arena& arena = self->parts_.arena;
  ipc::Server::Options server{"trunk",
                              self->parts_.checkpoint.fingerprint(),
                              {{kRegion, arena.generation(), arena.data().size(), arena.fd()}}};
  ipc::Server::Callbacks callbacks{
      [self](ipc::Server::ClientId client, const ipc::Envelope& envelope) {
        self->on_message(client, envelope);
      },
      [self](ipc::Server::ClientId client) { self->streamer_.drop(client); },
      [self] { return self->stats(); }};
  K3_ASSIGN(self->server_,
            ipc::Server::bind(loop, options.run_dir, std::move(server), std::move(callbacks)));
  self->streamer_.start();
  spdlog::info("ready units={} slots={} arena_bytes={} pinned_units={} pass_bytes={}",
               self->parts_.table.units.size(), self->pool_.slots(), arena.data().size(),
               self->parts_.plan.pinned_units(), self->parts_.table.pass_bytes());
  return service;
}

TrunkService::TrunkService(ipc::EventLoop& loop, Parts parts)
    : loop_(loop),
      parts_(std::move(parts)),
      order_(trunk_order(parts_.checkpoint.config())),
      pool_(parts_.arena.data(), parts_.plan.slots, parts_.plan.slot_bytes),
      streamer_(
          pool_, parts_.plan.pinned,
          {[this](const Streamer::Read& read) { submit(read); },
           [this](std::uint64_t client, std::uint64_t pass, std::uint32_t unit, std::size_t slot) {
             server_->send(client, ready_message(pass, unit, slot));
           },
           [this](std::uint64_t client, std::uint64_t pass, std::uint32_t unit,
                  const Error& error) {
             server_->send(client, ipc::UnitFailed{pass, unit, error});
           }}),
      done_source_(loop.watch(parts_.engine->done_fd(), [this] { on_reads_done(); })) {}

TrunkService::~TrunkService() {
  loop_.remove(done_source_);
  server_.reset();
  parts_.engine.reset();  // joins the readers while their buffers still exist
}

void TrunkService::on_message(ipc::Server::ClientId client, const ipc::Envelope& envelope) {
  const std::uint64_t sequence = envelope.header.sequence;
  spans::set_trace_id(envelope.header.trace_id);
  if (std::holds_alternative<ipc::DescribeTrunk>(envelope.body)) {
    server_->send(client, description(), sequence);
  } else if (const auto* subscribe = std::get_if<ipc::Subscribe>(&envelope.body)) {
    const Status status = streamer_.subscribe(client, *subscribe);
    if (!status) reply_error(client, sequence, status.error());
  } else if (const auto* release = std::get_if<ipc::UnitRelease>(&envelope.body)) {
    if (!streamer_.release(client, release->pass, release->unit)) {
      spdlog::warn("release_unknown client={} pass={} unit={}", client, release->pass,
                   release->unit);
    }
  } else if (const auto* request = std::get_if<ipc::RowsRequest>(&envelope.body)) {
    auto jobs = parts_.rows.begin(client, sequence, request->ids);
    if (!jobs) return reply_error(client, sequence, std::move(jobs.error()));
    for (ReadJob& job : *jobs) parts_.engine->submit(std::move(job));
  } else {
    reply_error(client, sequence,
                {ErrorCode::kUsage, "k3-trunk does not serve this kind of message"});
  }
}

void TrunkService::on_reads_done() {
  for (const ReadDone& done : parts_.engine->take_done()) {
    if (done.status) {
      bytes_read_ += done.bytes;
    } else {
      spdlog::warn("read_failed error=\"{}\"", done.status.error().message);
    }
    if (done.id < EmbeddingRows::kFirstJobId) {
      streamer_.read_done(static_cast<std::uint32_t>(done.id), done.status);
      continue;
    }
    ++(done.status ? rows_read_ : row_errors_);
    if (const auto answer = parts_.rows.read_done(done)) {
      server_->send(answer->client, answer->body, answer->in_reply_to);
    }
  }
}

void TrunkService::submit(const Streamer::Read& read) {
  const Unit& unit = parts_.table.units[read.unit];
  const std::span<std::byte> slot = pool_.bytes(read.slot);
  ReadJob job;
  job.id = read.unit;
  job.label = label(read.unit);
  job.checksum = unit.checksum;
  job.urgent = read.urgent;
  for (const UnitExtent& extent : unit.extents) {
    job.extents.push_back({parts_.files[extent.file], extent.offset,
                           slot.subspan(extent.unit_offset, extent.length)});
  }
  parts_.engine->submit(std::move(job));
}

// "unit 7 (FIRST TENSOR .. LAST TENSOR)"
std::string TrunkService::label(std::uint32_t unit) const {
  const std::vector<UnitBlock>& blocks = parts_.table.units[unit].blocks;
  const std::string& first = order_.at(blocks.front().tensor).name;
  const std::string& last = order_.at(blocks.back().tensor).name;
  return first == last ? fmt::format("unit {} ({})", unit, first)
                       : fmt::format("unit {} ({} .. {})", unit, first, last);
}

ipc::UnitReady TrunkService::ready_message(std::uint64_t pass, std::uint32_t unit,
                                           std::size_t slot) const {
  const Unit& entry = parts_.table.units[unit];
  ipc::UnitReady message{
      pass, unit, {kRegion, parts_.arena.generation(), pool_.offset(slot), entry.bytes}, {}};
  for (const UnitBlock& block : entry.blocks) {
    message.blocks.push_back({block.tensor, block.first_row, block.rows,
                              static_cast<std::uint8_t>(block.encoding), block.offset,
                              block.length});
  }
  return message;
}

ipc::TrunkDescription TrunkService::description() const {
  return {parts_.checkpoint.config_json(),
          static_cast<std::uint32_t>(parts_.checkpoint.config().layers),
          static_cast<std::uint32_t>(parts_.table.units.size()),
          parts_.table.head_unit,
          parts_.plan.slots,
          parts_.arena.data().size(),
          parts_.table.pass_bytes()};
}

ipc::Stats TrunkService::stats() const {
  const Streamer::Counters& units = streamer_.counters();
  return {{{"bytes_read", bytes_read_},
           {"reads", units.reads},
           {"units_delivered", units.units_delivered},
           {"units_reused", units.units_reused},
           {"rows_read", rows_read_},
           {"read_errors", units.read_errors + row_errors_},
           {"arena_bytes", parts_.arena.data().size()},
           {"pinned_units", parts_.plan.pinned_units()},
           {"slots", parts_.plan.slots}}};
}

void TrunkService::reply_error(ipc::Server::ClientId client, std::uint64_t sequence, Error error) {
  spdlog::warn("refused client={} error=\"{}\"", client, error.message);
  server_->send(client, ipc::ErrorReply{std::move(error)}, sequence);
}

}  // namespace k3::trunk
