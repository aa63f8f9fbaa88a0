// A client of the experts service that checks every message it receives against the contract.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "common/arena/arena.h"
#include "common/base/result.h"
#include "common/ipc/messages.h"
#include "common/ipc/run_dir.h"
#include "tools/k3/conform_clauses.h"
#include "tools/k3/conform_peer.h"
#include "tools/k3/conform_truth.h"

namespace k3::cli {

// What every scenario works with; outlives them all.
struct ConformSetup {
  ipc::Endpoint endpoint;
  ExpertTruth& truth;
  Findings& findings;
  std::chrono::milliseconds limit;  // for any one answer
};

struct ConformBatch {
  std::uint32_t layer = 0;
  std::uint64_t sequence = 0;       // of its fetch
  std::set<std::uint32_t> experts;  // asked for
  std::set<std::uint32_t> due;      // neither arrived nor failed
  std::map<std::uint32_t, ipc::ArrivedExpert> arrived;
  std::map<std::uint32_t, ExpertTruth::Sums> held;  // of the bytes when they had arrived
  bool refused = false;
};

// Greeted when it exists. Batches number themselves from 1. Errors of every call: kUnavailable when
// the service has hung up, kFailed when it answers nothing where it must, kWeights when the shards
// cannot be read; a breach of the contract alone is a finding, not an error. One thread.
class ConformClient {
 public:
  // Connects, maps the regions, says Hello.
  static Result<std::unique_ptr<ConformClient>> connect(const ConformSetup& setup);

  const ipc::Welcome& welcome() const { return welcome_; }
  std::uint64_t incarnation() const { return incarnation_; }  // of the service
  std::set<std::uint64_t> generations() const;
  ConformPeer& peer() { return peer_; }

  // The answer to `message`, by its sequence number; nothing when the service has answered a later
  // request first.
  Result<std::optional<ipc::Envelope>> ask(const ipc::Message& message);
  Result<ipc::ExpertsDescription> describe();
  Result<std::map<std::string, std::uint64_t>> counters();
  // When it returns, all that the service said to what was sent before has been handled.
  Status fence();
  // The next error that answers no request; nothing when the limit passes first.
  Result<std::optional<Error>> unasked_error();

  // Opens a batch under the next number, which it returns.
  Result<std::uint64_t> fetch(std::uint32_t layer, const std::vector<std::uint32_t>& experts,
                              std::uint8_t urgency = 0);
  // Opens it under `number`.
  Status fetch_as(std::uint64_t number, std::uint32_t layer,
                  const std::vector<std::uint32_t>& experts, std::uint8_t urgency = 0);
  // Waits until every expert has arrived and compares the bytes with the shards (E12). An expert
  // that does not come within the limit breaks `incomplete`.
  Status wait(std::uint64_t batch, Clause incomplete = Clause::kComplete);
  // fetch and wait.
  Result<std::uint64_t> demand(std::uint32_t layer, const std::vector<std::uint32_t>& experts);
  // Whether the bytes of a batch are still those that arrived (E22).
  void check_held(std::uint64_t batch);
  Status release(std::uint64_t batch);
  Status release_all();
  const ConformBatch& batch(std::uint64_t number) const { return batches_.at(number); }
  std::size_t experts_held() const;

 private:
  struct Region {
    std::uint64_t generation = 0;
    std::uint64_t bytes = 0;  // announced
    std::optional<MappedRegion> mapping;
  };

  ConformClient(const ConformSetup& setup, ConformPeer peer)
      : setup_(setup), peer_(std::move(peer)) {}
  Status greet();
  Status map_regions();
  Status handle_next();
  Status handle(const ipc::Envelope& envelope);
  void on_arrived(const ipc::Arrived& arrived);
  void on_expert(std::uint64_t number, ConformBatch& batch, const ipc::ArrivedExpert& expert);
  void on_failed(const ipc::ExpertFailed& failed);
  void check_parts(std::uint64_t number, const ipc::ArrivedExpert& expert);
  // The six parts in shared memory; nothing when a reference leads nowhere (E13 has it).
  std::optional<std::array<std::span<const std::byte>, kExpertParts>> bytes_of(
      const ipc::ArrivedExpert& expert) const;
  Status check_bytes(std::uint64_t number);

  const ConformSetup& setup_;
  ConformPeer peer_;
  std::map<std::uint32_t, Region> regions_;
  ipc::Welcome welcome_;
  std::uint64_t incarnation_ = 0;
  std::uint64_t next_batch_ = 1;
  std::map<std::uint64_t, ConformBatch> batches_;   // not released
  std::set<std::uint64_t> cancelled_;               // released before they were complete
  std::set<std::uint64_t> abandoned_;               // of these, whose release the service has seen
  std::map<std::uint64_t, ipc::Envelope> answers_;  // by the request's sequence, until asked for
  std::vector<Error> unasked_;
};

}  // namespace k3::cli
