#include "services/compute/remote_trunk.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <variant>

#include "common/base/check.h"
#include "common/observe/spans.h"
#include "services/compute/messaging_timer.h"

namespace k3::compute {

Result<std::unique_ptr<RemoteTrunk>> RemoteTrunk::create(ipc::EventLoop& loop,
                                                         std::filesystem::path run_dir, Pump pump) {
  std::unique_ptr<RemoteTrunk> trunk(new RemoteTrunk(loop, std::move(run_dir), std::move(pump)));
  K3_TRY(trunk->connect());
  return trunk;
}

RemoteTrunk::RemoteTrunk(ipc::EventLoop& loop, std::filesystem::path run_dir, Pump pump)
    : loop_(loop), run_dir_(std::move(run_dir)), pump_(std::move(pump)) {}

Status RemoteTrunk::connect() {
  described_ = false;
  K3_ASSIGN(
      client_,
      ipc::Client::create(
          loop_, run_dir_, {.service = "trunk", .role = "compute", .fingerprint = fingerprint_},
          {.on_up = [this](const ipc::Welcome& welcome) { on_up(welcome); },
           .on_message = [this](const ipc::Envelope& message) { on_message(message); },
           .on_down = [] {}}));
  return {};
}

Status RemoteTrunk::wait() {
  const spans::Scope span("wait for unit", tensor_);
  const auto start = std::chrono::steady_clock::now();
  const Status status = pump_();
  waited_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  K3_TRY(status);
  if (client_->failure()) return tl::unexpected<Error>(*client_->failure());
  if (error_) return tl::unexpected<Error>(*error_);
  return {};
}

std::optional<Error> RemoteTrunk::failure() const {
  if (client_->failure()) return client_->failure();
  return error_ && error_->code == ErrorCode::kIncompatible ? error_ : std::nullopt;
}

Result<ipc::TrunkDescription> RemoteTrunk::description() {
  while (!described_) K3_TRY(wait());
  return *description_;
}

// --- what the service says ---

void RemoteTrunk::on_up(const ipc::Welcome& welcome) {
  fingerprint_ = welcome.fingerprint;
  described_ = false;
  // What was received went with the old peer: everything not released is asked for again.
  for (Pass& pass : passes_) {
    pass.error.reset();
    for (const Unit& unit : units_) {
      if (unit.ready.pass == pass.number) {
        pass.next_unit = std::min(pass.next_unit, unit.ready.unit);
      }
    }
  }
  units_.clear();
  releases_.clear();
  (void)client_->send(ipc::DescribeTrunk{});
}

void RemoteTrunk::on_message(const ipc::Envelope& envelope) {
  if (const auto* description = std::get_if<ipc::TrunkDescription>(&envelope.body)) {
    on_description(*description);
  } else if (const auto* unit = std::get_if<ipc::UnitReady>(&envelope.body)) {
    on_unit(*unit);
  } else if (const auto* failed = std::get_if<ipc::UnitFailed>(&envelope.body)) {
    on_unit_failed(*failed);
  } else if (const auto* rows = std::get_if<ipc::Rows>(&envelope.body)) {
    if (envelope.header.in_reply_to == row_sequence_) {
      row_answer_ = EmbeddingRows{rows->encoding, rows->row_bytes, rows->data};
    }
  } else if (const auto* error = std::get_if<ipc::ErrorReply>(&envelope.body)) {
    on_error(envelope.header.in_reply_to, error->error);
  } else {
    spdlog::warn("unexpected_message service=trunk type={}", envelope.body.index());
  }
}

void RemoteTrunk::on_description(const ipc::TrunkDescription& description) {
  if (description.head_unit == 0 || description.head_unit >= description.units) {
    error_ = Error{ErrorCode::kFailed, fmt::format("trunk describes {} units, the head from {}",
                                                   description.units, description.head_unit)};
    return;
  }
  if (description_ &&
      (description.config != description_->config || description.layers != description_->layers)) {
    error_ = Error{ErrorCode::kIncompatible,
                   fmt::format("trunk now serves {} layers, {} before, or another configuration",
                               description.layers, description_->layers)};
    return;
  }
  // Other flags may have cut other units, even as many; those passes start over.
  const bool same_units = description_ && description.units == description_->units &&
                          description.head_unit == description_->head_unit &&
                          description.slots == description_->slots &&
                          description.arena_bytes == description_->arena_bytes;
  description_ = description;
  described_ = true;
  for (Pass& pass : passes_) {
    if (!same_units) std::tie(pass.next_unit, pass.last_unit) = units_of(pass.part);
    subscribe(pass);
  }
  if (!row_ids_.empty()) ask_rows();
}

void RemoteTrunk::on_unit(const ipc::UnitReady& unit) {
  const auto due = std::find_if(passes_.begin(), passes_.end(), [](const Pass& pass) {
    return pass.next_unit <= pass.last_unit && !pass.error;
  });
  if (due == passes_.end() || due->number != unit.pass || due->next_unit != unit.unit) {
    error_ =
        Error{ErrorCode::kFailed,
              fmt::format("trunk delivered unit {} of pass {} out of order", unit.unit, unit.pass)};
    return;
  }
  ++due->next_unit;
  units_.push_back({.ready = unit});
}

void RemoteTrunk::on_unit_failed(const ipc::UnitFailed& failed) {
  for (Pass& pass : passes_) {
    if (pass.number == failed.pass) {
      pass.error = Error{ErrorCode::kWeights, failed.error.message};
    }
  }
}

void RemoteTrunk::on_error(std::uint64_t in_reply_to, const Error& error) {
  if (!row_ids_.empty() && in_reply_to == row_sequence_) {
    row_answer_ = tl::unexpected<Error>(error);
  } else {
    error_ = Error{error.code, "trunk: " + error.message};
  }
}

// --- passes ---

std::pair<std::uint32_t, std::uint32_t> RemoteTrunk::units_of(Part part) const {
  return part == Part::kLayers ? std::pair(0u, description_->head_unit - 1)
                               : std::pair(description_->head_unit, description_->units - 1);
}

void RemoteTrunk::add_pass(Part part) {
  const auto [first, last] = units_of(part);
  passes_.push_back(
      {.number = next_pass_++, .part = part, .next_unit = first, .last_unit = last, .error = {}});
  if (described_) subscribe(passes_.back());
}

void RemoteTrunk::subscribe(const Pass& pass) {
  // When the service is down its return subscribes again.
  if (pass.next_unit <= pass.last_unit) {
    (void)client_->send(ipc::Subscribe{pass.number, pass.next_unit, pass.last_unit},
                        spans::trace_id());
  }
}

Status RemoteTrunk::begin_pass(bool with_head, bool another_follows) {
  const spans::Scope span("messaging");
  const MessagingTimer timer(messaging_ns_, waited_ns_);
  K3_TRY(description());
  const bool reusable =
      passes_.size() == 1 && passes_.front().number == ahead_pass_ && !passes_.front().error;
  if (!passes_.empty() && !reusable) {
    give_up();
    K3_TRY(description());
  }
  tensor_ = row_ = 0;
  if (passes_.empty()) add_pass(Part::kLayers);
  if (with_head) add_pass(Part::kHead);
  ahead_pass_ = another_follows ? next_pass_ : 0;
  if (another_follows) add_pass(Part::kLayers);
  send_releases();
  return {};
}

bool RemoteTrunk::used(const ipc::Block& block) const {
  return block.tensor < tensor_ ||
         (block.tensor == tensor_ && std::uint64_t{block.first_row} + block.rows <= row_);
}

Result<TrunkBlock> RemoteTrunk::block() {
  const MessagingTimer timer(messaging_ns_, waited_ns_);
  while (true) {
    if (passes_.empty()) {
      return fail(ErrorCode::kWeights, "trunk's units end before tensor {} row {}", tensor_, row_);
    }
    const bool ready =
        client_->up() && !units_.empty() && units_.front().ready.pass == passes_.front().number;
    if (ready) {
      Unit& unit = units_.front();
      const std::vector<ipc::Block>& blocks = unit.ready.blocks;
      while (unit.block < blocks.size() && used(blocks[unit.block])) ++unit.block;
      if (unit.block < blocks.size()) return view(unit);
      release_front();
      continue;
    }
    if (passes_.front().error) return tl::unexpected<Error>(*passes_.front().error);
    K3_TRY(wait());
  }
}

Result<TrunkBlock> RemoteTrunk::view(const Unit& unit) const {
  const ipc::Block& block = unit.ready.blocks[unit.block];
  // Units of a lost service were forgotten, so this cannot be stale: when it fails, the service
  // that is connected refers to what it does not have, and asking it again would not help.
  K3_ASSIGN(const std::span<const std::byte> bytes, client_->resolve(unit.ready.ref));
  if (block.rows == 0 || block.offset > bytes.size() ||
      block.length > bytes.size() - block.offset) {
    return fail(ErrorCode::kWeights, "trunk unit {}: {} rows, {} bytes at {} of {}",
                unit.ready.unit, block.rows, block.length, block.offset, bytes.size());
  }
  // Rows used before the service was restarted with other units are passed over.
  const std::uint32_t used_rows =
      block.tensor == tensor_ && block.first_row < row_ ? row_ - block.first_row : 0;
  const std::uint64_t used_bytes = block.length / block.rows * used_rows;
  return TrunkBlock{.tensor = block.tensor,
                    .first_row = block.first_row + used_rows,
                    .rows = block.rows - used_rows,
                    .encoding = block.encoding,
                    .bytes = bytes.subspan(block.offset + used_bytes, block.length - used_bytes),
                    .ends_unit = unit.block + 1 == unit.ready.blocks.size()};
}

void RemoteTrunk::done() {
  const MessagingTimer timer(messaging_ns_, waited_ns_);
  K3_CHECK(!units_.empty(), "no block in use");
  Unit& unit = units_.front();
  const ipc::Block& block = unit.ready.blocks[unit.block];
  tensor_ = block.tensor;
  row_ = block.first_row + block.rows;
  if (++unit.block == unit.ready.blocks.size()) release_front();
}

void RemoteTrunk::release_front() {
  const Unit unit = std::move(units_.front());
  units_.pop_front();
  releases_.push_back({unit.ready.pass, unit.ready.unit});
  if (description_->slots < description_->units) send_releases();
  if (unit.ready.unit == passes_.front().last_unit) passes_.pop_front();
}

void RemoteTrunk::send_releases() {
  for (const ipc::UnitRelease& release : releases_) (void)client_->send(release, spans::trace_id());
  releases_.clear();
}

void RemoteTrunk::abandon() {
  const MessagingTimer timer(messaging_ns_, waited_ns_);
  give_up();
}

void RemoteTrunk::give_up() {
  row_ids_.clear();
  row_answer_.reset();
  if (failure() || (passes_.empty() && !error_)) return;
  passes_.clear();
  units_.clear();
  releases_.clear();
  error_.reset();
  closed_losses_ += client_->losses();
  if (Status status = connect(); !status) error_ = status.error();
}

// --- embedding ---

void RemoteTrunk::ask_rows() {
  const auto sequence = client_->send(ipc::RowsRequest{row_ids_}, spans::trace_id());
  if (sequence) row_sequence_ = *sequence;
}

Result<EmbeddingRows> RemoteTrunk::embedding(std::span<const std::int32_t> ids) {
  const MessagingTimer timer(messaging_ns_, waited_ns_);
  row_ids_.assign(ids.begin(), ids.end());
  row_answer_.reset();
  if (described_) ask_rows();
  Status status;
  while (!row_answer_ && status) status = wait();
  row_ids_.clear();
  K3_TRY(status);
  return std::move(*row_answer_);
}

}  // namespace k3::compute
