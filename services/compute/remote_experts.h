// Routed experts from an expert service: asks in rounds that fit it, follows it over restarts.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "common/base/result.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/model_config.h"
#include "common/ipc/client.h"
#include "common/ipc/event_loop.h"
#include "common/ipc/messages.h"
#include "services/compute/weight_source.h"

namespace k3::compute {

// A demand larger than the service's slots is fetched in rounds, each released before the next.
// When the service is lost, the experts not yet handed out are asked for again under a new batch
// number once it is back. Everything on the event loop's thread; waiting calls run the pump.
class RemoteExperts final : public ExpertReader {
 public:
  // Connects and returns at once. The service must serve the model of `fingerprint`. `config` is
  // borrowed; `loop` and what the pump touches outlive this.
  static Result<std::unique_ptr<RemoteExperts>> create(ipc::EventLoop& loop,
                                                       const std::filesystem::path& run_dir,
                                                       const ModelConfig& config,
                                                       const std::string& fingerprint, Pump pump);

  // Waits until the service is connected and known to fit the model.
  Status wait_until_ready();

  Status fetch(int layer, std::span<const std::uint32_t> experts) override;
  Result<ExpertView> next() override;
  void release() override;
  std::uint64_t waited_ns() const override { return waited_ns_; }
  std::uint64_t messaging_ns() const override { return messaging_ns_; }

  // The demands from here on belong to this token, counted from 1 (`traceId` of their frames); 0:
  // to the prefill.
  void set_token(std::uint64_t token) { token_ = token; }

  std::uint64_t losses() const { return client_->losses(); }
  // The service can never serve us again (kIncompatible).
  std::optional<Error> failure() const;

 private:
  RemoteExperts(const ModelConfig& config, Pump pump) : config_(config), pump_(std::move(pump)) {}
  Status wait();

  void on_up();
  void on_message(const ipc::Envelope& envelope);
  void on_description(const ipc::ExpertsDescription& description);
  void on_arrived(const ipc::Arrived& arrived);

  void start_round();
  void end_round();
  Result<ExpertView> view(const ipc::ArrivedExpert& arrived) const;

  const ModelConfig& config_;
  Pump pump_;
  std::unique_ptr<ipc::Client> client_;
  std::uint32_t slots_ = 0;     // of the peer now connected; 0 until described
  std::optional<Error> error_;  // of the demand in hand, or kIncompatible for good

  std::uint64_t token_ = 0;
  int layer_ = 0;
  std::deque<std::uint32_t> waiting_;       // for a later round
  std::uint64_t batch_ = 0;                 // of the latest round
  bool round_open_ = false;                 // not released yet
  std::uint64_t fetch_sequence_ = 0;        // of its Fetch
  std::set<std::uint32_t> due_;             // of the round, not arrived
  std::deque<ipc::ArrivedExpert> arrived_;  // of the round, not handed out

  std::uint64_t waited_ns_ = 0;
  std::uint64_t messaging_ns_ = 0;
};

}  // namespace k3::compute
