#include "services/compute/remote_experts.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "common/base/check.h"
#include "common/observe/spans.h"
#include "services/compute/expert_view.h"
#include "services/compute/messaging_timer.h"

namespace k3::compute {

Result<std::unique_ptr<RemoteExperts>> RemoteExperts::create(ipc::EventLoop& loop,
                                                             const std::filesystem::path& run_dir,
                                                             const ModelConfig& config,
                                                             const std::string& fingerprint,
                                                             Pump pump) {
  std::unique_ptr<RemoteExperts> experts(new RemoteExperts(config, std::move(pump)));
  RemoteExperts* self = experts.get();
  K3_ASSIGN(
      self->client_,
      ipc::Client::create(
          loop, run_dir, {.service = "experts", .role = "compute", .fingerprint = fingerprint},
          {.on_up = [self](const ipc::Welcome&) { self->on_up(); },
           .on_message = [self](const ipc::Envelope& message) { self->on_message(message); },
           .on_down = [] {}}));
  return experts;
}

Status RemoteExperts::wait() {
  const spans::Scope span("wait for experts", static_cast<std::uint32_t>(layer_));
  const auto start = std::chrono::steady_clock::now();
  const Status status = pump_();
  waited_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  K3_TRY(status);
  if (client_->failure()) return tl::unexpected<Error>(*client_->failure());
  if (error_) return tl::unexpected<Error>(*error_);
  return {};
}

std::optional<Error> RemoteExperts::failure() const {
  if (client_->failure()) return client_->failure();
  return error_ && error_->code == ErrorCode::kIncompatible ? error_ : std::nullopt;
}

Status RemoteExperts::wait_until_ready() {
  while (slots_ == 0) K3_TRY(wait());
  return {};
}

// --- what the service says ---

void RemoteExperts::on_up() {
  slots_ = 0;
  if (round_open_) {
    // Leases and arrivals went with the old peer; what was not handed out is due again.
    for (const ipc::ArrivedExpert& expert : arrived_) due_.insert(expert.expert);
    waiting_.insert(waiting_.begin(), due_.begin(), due_.end());
    due_.clear();
    arrived_.clear();
    round_open_ = false;
  }
  (void)client_->send(ipc::DescribeExperts{});
}

void RemoteExperts::on_message(const ipc::Envelope& envelope) {
  if (const auto* description = std::get_if<ipc::ExpertsDescription>(&envelope.body)) {
    on_description(*description);
  } else if (const auto* arrived = std::get_if<ipc::Arrived>(&envelope.body)) {
    on_arrived(*arrived);
  } else if (const auto* failed = std::get_if<ipc::ExpertFailed>(&envelope.body)) {
    if (round_open_ && failed->batch == batch_) {
      error_ = Error{ErrorCode::kWeights, failed->error.message};
    }
  } else if (const auto* error = std::get_if<ipc::ErrorReply>(&envelope.body)) {
    if (round_open_ && envelope.header.in_reply_to == fetch_sequence_) {
      error_ = Error{error->error.code, "experts: " + error->error.message};
    }
  } else {
    spdlog::warn("unexpected_message service=experts type={}", envelope.body.index());
  }
}

void RemoteExperts::on_description(const ipc::ExpertsDescription& description) {
  const auto layers = static_cast<std::uint32_t>(config_.layers);
  const auto experts = static_cast<std::uint32_t>(config_.experts);
  if (description.layers != layers || description.experts != experts || description.slots == 0) {
    error_ = Error{
        ErrorCode::kIncompatible,
        fmt::format("experts serves {} layers of {} experts in {} slots, trunk {} of {}",
                    description.layers, description.experts, description.slots, layers, experts)};
    return;
  }
  slots_ = description.slots;
  if (!waiting_.empty()) start_round();
}

void RemoteExperts::on_arrived(const ipc::Arrived& arrived) {
  if (!round_open_ || arrived.batch != batch_) return;  // of a batch released meanwhile
  for (const ipc::ArrivedExpert& expert : arrived.experts) {
    if (due_.erase(expert.expert) == 0) {
      error_ = Error{ErrorCode::kFailed, fmt::format("experts delivered layer {} expert {} unasked",
                                                     layer_, expert.expert)};
      return;
    }
    arrived_.push_back(expert);
  }
}

// --- demand ---

Status RemoteExperts::fetch(int layer, std::span<const std::uint32_t> experts) {
  const spans::Scope span("messaging");
  const MessagingTimer timer(messaging_ns_, waited_ns_);
  K3_CHECK(waiting_.empty() && !round_open_, "the previous demand is not released");
  if (const std::optional<Error> error = failure()) return tl::unexpected<Error>(*error);
  layer_ = layer;
  waiting_.assign(experts.begin(), experts.end());
  if (slots_ > 0) start_round();
  return {};
}

void RemoteExperts::start_round() {
  const std::size_t count = std::min<std::size_t>(slots_, waiting_.size());
  ipc::Fetch fetch{.batch = ++batch_,
                   .layer = static_cast<std::uint32_t>(layer_),
                   .experts = {waiting_.begin(), waiting_.begin() + count},
                   .urgency = 0};
  waiting_.erase(waiting_.begin(), waiting_.begin() + count);
  due_.insert(fetch.experts.begin(), fetch.experts.end());
  round_open_ = true;
  // When the service is down its return asks again.
  if (const auto sequence = client_->send(fetch, token_)) fetch_sequence_ = *sequence;
}

void RemoteExperts::end_round() {
  if (!round_open_) return;
  (void)client_->send(ipc::BatchRelease{batch_});
  round_open_ = false;
  due_.clear();
  arrived_.clear();
}

Result<ExpertView> RemoteExperts::next() {
  const MessagingTimer timer(messaging_ns_, waited_ns_);
  while (true) {
    if (!arrived_.empty() && client_->up()) {
      const ipc::ArrivedExpert expert = std::move(arrived_.front());
      arrived_.pop_front();
      return view(expert);
    }
    if (round_open_ && due_.empty() && arrived_.empty()) {
      K3_CHECK(!waiting_.empty(), "more experts taken than asked for");
      end_round();
      if (slots_ > 0) start_round();
    }
    K3_TRY(wait());
  }
}

void RemoteExperts::release() {
  const spans::Scope span("messaging");
  const MessagingTimer timer(messaging_ns_, waited_ns_);
  waiting_.clear();
  end_round();
  if (!failure()) error_.reset();
}

Result<ExpertView> RemoteExperts::view(const ipc::ArrivedExpert& arrived) const {
  if (arrived.parts.size() != kExpertParts) {
    return fail(ErrorCode::kFailed, "layer {} expert {}: {} parts, expected {}", layer_,
                arrived.expert, arrived.parts.size(), kExpertParts);
  }
  ExpertParts parts{};
  for (int i = 0; i < kExpertParts; ++i) {
    const std::uint64_t expected = expert_part_bytes(config_, static_cast<ExpertPart>(i));
    if (arrived.parts[i].length != expected) {
      return fail(ErrorCode::kWeights, "layer {} expert {} part {}: {} bytes, expected {}", layer_,
                  arrived.expert, i, arrived.parts[i].length, expected);
    }
    // Never stale: what a lost service had delivered was forgotten (on_up).
    K3_ASSIGN(const std::span<const std::byte> bytes, client_->resolve(arrived.parts[i]));
    parts[i] = reinterpret_cast<const std::uint8_t*>(bytes.data());
  }
  return expert_view(config_, arrived.expert, parts);
}

}  // namespace k3::compute
