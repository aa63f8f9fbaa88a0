#include "services/compute/compute_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "common/kernels/select.h"
#include "common/observe/spans.h"
#include "common/plan/compute_memory.h"
#include "services/compute/cpus.h"

namespace k3::compute {

namespace {

// The loop is turned at least this often while nothing happens.
constexpr std::chrono::milliseconds kIdleTurn{1000};

constexpr std::size_t kMaxQueuedRequests = 256;

}  // namespace

Result<std::unique_ptr<ComputeService>> ComputeService::create(ipc::EventLoop& loop,
                                                               const Options& options) {
  K3_ASSIGN(const kernels::KernelTable* table, kernels::select_table(options.isa));
  const int threads = options.threads > 0 ? options.threads : usable_cores();
  std::unique_ptr<ComputeService> service(new ComputeService(loop, options, *table, threads));
  K3_TRY(service->connect());
  K3_TRY(service->bind());
  const ipc::ComputeDescription ready = service->description();
  spdlog::info("ready layers={} isa={} threads={} chunk={} planned_bytes={}", ready.layers,
               ready.isa, ready.threads, options.chunk, ready.planned_bytes);
  return service;
}

ComputeService::ComputeService(ipc::EventLoop& loop, const Options& options,
                               const kernels::KernelTable& table, int threads)
    : loop_(loop), options_(options), multiplier_(table, threads) {}

Status ComputeService::connect() {
  const Pump wait = [this] { return pump(kIdleTurn); };
  K3_ASSIGN(trunk_, RemoteTrunk::create(loop_, options_.run_dir, wait));
  K3_ASSIGN(const ipc::TrunkDescription trunk, trunk_->description());
  K3_ASSIGN(config_, parse_model_config(trunk.config, "the trunk's config.json"));
  model_layers_ = static_cast<std::uint32_t>(config_.layers);
  if (trunk.layers == 0 || trunk.layers > model_layers_) {
    return fail(ErrorCode::kIncompatible, "trunk serves {} layers of {}", trunk.layers,
                model_layers_);
  }
  config_.layers = static_cast<int>(trunk.layers);
  config_.attention.resize(trunk.layers);
  config_.mla_norm_eps = options_.mla_norm_eps;
  K3_ASSIGN(experts_,
            RemoteExperts::create(loop_, options_.run_dir, config_, trunk_->fingerprint(), wait));
  K3_TRY(experts_->wait_until_ready());
  K3_TRY(check_plan(memory_plan(), read_memory_limits()));
  model_.emplace(config_, options_.chunk, multiplier_, *trunk_, *experts_,
                 [this] { return pump(std::chrono::milliseconds(0)); });
  if (options_.record) K3_TRY(record(trunk));
  generator_.emplace(
      *model_, *trunk_, *experts_,
      Generator::Limits{.chunk = options_.chunk, .max_positions = options_.max_positions});
  return {};
}

Status ComputeService::record(const ipc::TrunkDescription& trunk) {
  const RecordedStart start{.fingerprint = trunk_->fingerprint(),
                            .config = trunk.config,
                            .layers = trunk.layers,
                            .model_layers = model_layers_,
                            .mla_norm_eps = config_.mla_norm_eps,
                            .isa = multiplier_.table().name,
                            .threads = static_cast<std::uint32_t>(multiplier_.threads())};
  const auto max_bytes = static_cast<std::uint64_t>(options_.record_max_mb * 1e6);
  K3_ASSIGN(recorder_, Recorder::create(*options_.record, max_bytes, start,
                                        static_cast<std::size_t>(config_.vocab)));
  model_->observe(recorder_.get());
  spdlog::info("recording file={} max_bytes={}", options_.record->string(), max_bytes);
  return {};
}

Status ComputeService::bind() {
  K3_ASSIGN(
      server_,
      ipc::Server::bind(
          loop_, options_.run_dir,
          {.service = "compute", .fingerprint = trunk_->fingerprint(), .regions = {}},
          {.on_message = [this](ClientId client,
                                const ipc::Envelope& message) { on_message(client, message); },
           .on_disconnect = [this](ClientId client) { on_disconnect(client); },
           .stats = [this] { return stats(); }}));
  return {};
}

Status ComputeService::pump(std::chrono::milliseconds limit) {
  loop_.run_once(limit);
  if (loop_.stopped()) return fail(ErrorCode::kStopped, "the compute worker is stopping");
  if (cancelled_) return fail(ErrorCode::kStopped, "cancelled by the client");
  if (client_gone_) return fail(ErrorCode::kStopped, "the client has gone");
  return {};
}

Status ComputeService::run() {
  while (!loop_.stopped()) {
    if (const std::optional<Error> error = weights_failure()) {
      return tl::unexpected<Error>(*error);
    }
    if (queue_.empty()) {
      loop_.run_once(kIdleTurn);
    } else {
      serve_next();
    }
  }
  for (const Request& request : queue_) {
    reply_error(request, {ErrorCode::kUnavailable, "the compute worker is stopping"});
  }
  return {};
}

std::optional<Error> ComputeService::weights_failure() const {
  return trunk_->failure() ? trunk_->failure() : experts_->failure();
}

// --- requests ---

void ComputeService::on_message(ClientId client, const ipc::Envelope& envelope) {
  const std::uint64_t sequence = envelope.header.sequence;
  if (std::holds_alternative<ipc::DescribeCompute>(envelope.body)) {
    server_->send(client, description(), sequence);
  } else if (const auto* generate = std::get_if<ipc::Generate>(&envelope.body)) {
    Request request{client, sequence, envelope.header.trace_id, *generate};
    if (Status status = generator_->validate(*generate); !status) {
      reply_error(request, std::move(status.error()));
    } else if (queue_.size() == kMaxQueuedRequests) {
      reply_error(request, {ErrorCode::kFailed,
                            fmt::format("{} requests are waiting already", queue_.size())});
    } else {
      queue_.push_back(std::move(request));
    }
  } else if (const auto* cancel = std::get_if<ipc::Cancel>(&envelope.body)) {
    const auto same = [&](const Request& request) {
      return request.client == client && request.generate.request == cancel->request;
    };
    if (current_ && same(*current_)) cancelled_ = true;
    if (std::erase_if(queue_, same) > 0) {
      server_->send(client, ipc::Finished{cancel->request, ipc::FinishReason::kCancelled, {}});
    }
  } else {
    server_->send(client, ipc::ErrorReply{{ErrorCode::kUsage, "not a request to a compute worker"}},
                  sequence);
  }
}

void ComputeService::on_disconnect(ClientId client) {
  std::erase_if(queue_, [&](const Request& request) { return request.client == client; });
  if (current_ && current_->client == client) client_gone_ = true;
}

void ComputeService::serve_next() {
  current_ = std::move(queue_.front());
  queue_.pop_front();
  cancelled_ = client_gone_ = false;
  spdlog::info("request_started client={} request={} prompt={} max_tokens={}", current_->client,
               current_->generate.request, current_->generate.prompt_ids.size(),
               current_->generate.max_tokens);
  set_token(0);
  const Status status = generator_->run(current_->generate, [this](const ipc::Message& message) {
    // What follows a token is the work for the next one.
    if (const auto* token = std::get_if<ipc::Token>(&message)) set_token(token->index + 1);
    if (!client_gone_) server_->send(current_->client, message, 0, current_->trace_id);
  });
  finish_current(status);
  current_.reset();
  cancelled_ = client_gone_ = false;
}

void ComputeService::set_token(std::uint64_t token) {
  experts_->set_token(token);
  spans::set_trace_id(token);
}

void ComputeService::finish_current(const Status& status) {
  const std::uint64_t request = current_->generate.request;
  if (status) {
    spdlog::info("request_finished client={} request={}", current_->client, request);
    return;
  }
  spdlog::warn("request_ended client={} request={} error=\"{}\"", current_->client, request,
               status.error().message);
  if (client_gone_) return;
  if (cancelled_ && status.error().code == ErrorCode::kStopped) {
    const ipc::Finished finished{request, ipc::FinishReason::kCancelled, generator_->prefill()};
    server_->send(current_->client, finished, 0, current_->trace_id);
  } else if (status.error().code == ErrorCode::kStopped) {
    // For the client a stopped worker is one to ask again: the supervisor may start another.
    reply_error(*current_, {ErrorCode::kUnavailable, status.error().message});
  } else if (status.error().code == ErrorCode::kUnavailable) {
    // This worker goes on: asking it again without a new connection would be asking for ever.
    reply_error(*current_, {ErrorCode::kFailed, status.error().message});
  } else {
    reply_error(*current_, status.error());
  }
}

void ComputeService::reply_error(const Request& request, Error error) {
  server_->send(request.client, ipc::ErrorReply{std::move(error)}, request.sequence,
                request.trace_id);
}

// --- what it tells about itself ---

ipc::ComputeDescription ComputeService::description() const {
  return {.layers = static_cast<std::uint32_t>(config_.layers),
          .model_layers = model_layers_,
          .vocab = static_cast<std::uint32_t>(config_.vocab),
          .isa = multiplier_.table().name,
          .threads = static_cast<std::uint32_t>(multiplier_.threads()),
          .planned_bytes = planned_bytes(memory_plan())};
}

std::vector<PlannedMemory> ComputeService::memory_plan() const {
  return {{"activations", activation_bytes(config_, options_.chunk)},
          {"sequence", sequence_bytes(config_, options_.max_positions)}};
}

ipc::Stats ComputeService::stats() const {
  const ipc::Timings& spent = generator_->spent();
  const std::uint64_t others = spent.wait_trunk_ns + spent.wait_experts_ns + spent.messaging_ns;
  return {{{"tokens", generator_->tokens()},
           {"prefill_positions", generator_->prefill_positions()},
           {"passes", model_->passes()},
           {"experts_demanded", model_->experts_demanded()},
           {"trunk_losses", trunk_->losses()},
           {"experts_losses", experts_->losses()},
           {"wait_trunk_ns", spent.wait_trunk_ns},
           {"wait_experts_ns", spent.wait_experts_ns},
           {"messaging_ns", spent.messaging_ns},
           {"compute_ns", spent.total_ns - std::min(others, spent.total_ns)},
           {"state_bytes", generator_->state_bytes()},
           {"activation_bytes", model_->bytes()},
           {"queued_requests", queue_.size()}}};
}

}  // namespace k3::compute
