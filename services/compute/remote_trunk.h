// The trunk from a trunk service: subscribes passes, follows them over restarts of the service.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/ipc/client.h"
#include "common/ipc/event_loop.h"
#include "common/ipc/messages.h"
#include "services/compute/weight_source.h"

namespace k3::compute {

// A pass with the output head is two subscriptions, the layers and the head, so that the next
// pass's layers can be subscribed ahead without knowing whether its head will be wanted. A
// subscription left over at the end of a generation serves the next one.
//
// A unit is released as soon as it is used, because its slot is waited for, unless every unit has a
// slot of its own: then those of a pass go together when the next one begins, which spares waking
// the service, on a processor that computes, once a unit.
//
// When the service is lost, everything received is forgotten; once it is back the passes are
// subscribed again from the first unit not yet released, and blocks already used are passed over.
// Giving up a pass closes the connection and opens a new one: that ends all leases at once.
//
// Everything on the event loop's thread. Waiting calls run the pump.
class RemoteTrunk final : public TrunkReader {
 public:
  // Connects and returns at once; `loop` and what the pump touches outlive this.
  static Result<std::unique_ptr<RemoteTrunk>> create(ipc::EventLoop& loop,
                                                     std::filesystem::path run_dir, Pump pump);

  // What the service serves, waited for. Its configuration and layers never change afterwards;
  // its units may, when it is restarted with other flags.
  Result<ipc::TrunkDescription> description();
  // Of the model served; empty before the first description.
  const std::string& fingerprint() const { return fingerprint_; }

  Status begin_pass(bool with_head, bool another_follows) override;
  Result<TrunkBlock> block() override;
  void done() override;
  void abandon() override;
  // Ids must be those of the model; asked again after a loss.
  Result<EmbeddingRows> embedding(std::span<const std::int32_t> ids) override;
  std::uint64_t waited_ns() const override { return waited_ns_; }
  std::uint64_t messaging_ns() const override { return messaging_ns_; }

  // Times the service was lost.
  std::uint64_t losses() const { return closed_losses_ + client_->losses(); }
  // The service can never serve us again (kIncompatible).
  std::optional<Error> failure() const;

 private:
  enum class Part { kLayers, kHead };

  struct Pass {
    std::uint64_t number = 0;
    Part part = Part::kLayers;
    std::uint32_t next_unit = 0;  // not received yet
    std::uint32_t last_unit = 0;
    std::optional<Error> error;  // it ends at next_unit
  };

  struct Unit {
    ipc::UnitReady ready;
    std::size_t block = 0;  // index of the next to use
  };

  RemoteTrunk(ipc::EventLoop& loop, std::filesystem::path run_dir, Pump pump);
  Status connect();
  Status wait();
  void on_up(const ipc::Welcome& welcome);
  void on_message(const ipc::Envelope& envelope);
  void on_description(const ipc::TrunkDescription& description);
  void on_unit(const ipc::UnitReady& unit);
  void on_unit_failed(const ipc::UnitFailed& failed);
  void on_error(std::uint64_t in_reply_to, const Error& error);

  void add_pass(Part part);
  void subscribe(const Pass& pass);
  std::pair<std::uint32_t, std::uint32_t> units_of(Part part) const;
  void ask_rows();
  bool used(const ipc::Block& block) const;
  void release_front();
  void send_releases();
  void give_up();
  Result<TrunkBlock> view(const Unit& unit) const;

  ipc::EventLoop& loop_;
  std::filesystem::path run_dir_;
  Pump pump_;
  std::unique_ptr<ipc::Client> client_;
  std::uint64_t closed_losses_ = 0;
  std::string fingerprint_;
  std::optional<ipc::TrunkDescription> description_;
  bool described_ = false;      // by the peer now connected
  std::optional<Error> error_;  // the peer broke the protocol (ends the work in hand) or changed

  std::uint64_t next_pass_ = 1;
  std::uint64_t ahead_pass_ = 0;  // subscribed for the pass after the one begun last; 0 for none
  std::deque<Pass> passes_;       // the front is being consumed
  std::deque<Unit> units_;        // received and not used up, in order
  std::vector<ipc::UnitRelease> releases_;  // due, not sent
  // First row not used yet, in trunk order; the end of a tensor stands for the next one's start.
  std::uint32_t tensor_ = 0;
  std::uint32_t row_ = 0;

  std::vector<std::int32_t> row_ids_;  // asked for; empty when nothing is
  std::uint64_t row_sequence_ = 0;
  std::optional<Result<EmbeddingRows>> row_answer_;

  std::uint64_t waited_ns_ = 0;
  std::uint64_t messaging_ns_ = 0;
};

}  // namespace k3::compute
