// The scenarios of `k3 conform`: each is in charge of some clauses of docs/expert-service.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "tools/k3/conform_client.h"

namespace k3::cli {

// How far the scenarios go.
struct ConformScale {
  std::uint32_t slots = 0;                     // of the service
  std::uint64_t budget_bytes = 0;              // of experts that one scenario may ask for
  std::uint64_t fetches = 0;                   // of the endurance run
  std::optional<std::string> restart_command;  // for sh
};

// A scenario opens its own clients, and leaves no batch open but where the clause is about that. It
// returns an error when it cannot go on; breaches are findings.
using ScenarioFunction = Status (*)(const ConformSetup&, const ConformScale&);

// conform_connection.cpp
Status check_files(const ConformSetup& setup, const ConformScale& scale);
Status check_connection_ids(const ConformSetup& setup, const ConformScale& scale);
Status check_greeting(const ConformSetup& setup, const ConformScale& scale);
Status check_fingerprint(const ConformSetup& setup, const ConformScale& scale);
Status check_version(const ConformSetup& setup, const ConformScale& scale);
Status check_sequence(const ConformSetup& setup, const ConformScale& scale);
// conform_frames.cpp
Status check_malformed_frames(const ConformSetup& setup, const ConformScale& scale);
Status check_unserved_messages(const ConformSetup& setup, const ConformScale& scale);
// conform_requests.cpp
Status check_description(const ConformSetup& setup, const ConformScale& scale);
Status check_refusals(const ConformSetup& setup, const ConformScale& scale);
Status check_open_batches(const ConformSetup& setup, const ConformScale& scale);
Status check_hints_and_urgency(const ConformSetup& setup, const ConformScale& scale);
// conform_delivery.cpp
Status check_every_expert(const ConformSetup& setup, const ConformScale& scale);
Status check_leases(const ConformSetup& setup, const ConformScale& scale);
Status check_endurance(const ConformSetup& setup, const ConformScale& scale);
// conform_sharing.cpp
Status check_waiting(const ConformSetup& setup, const ConformScale& scale);
Status check_release(const ConformSetup& setup, const ConformScale& scale);
Status check_two_clients(const ConformSetup& setup, const ConformScale& scale);
// conform_death.cpp. Forks: no ConformPeer may exist.
Status check_death(const ConformSetup& setup, const ConformScale& scale);
// conform_restart.cpp
Status check_restart(const ConformSetup& setup, const ConformScale& scale);

// Experts numbered over all layers: number / experts-a-layer is the layer, from the first that has
// routed experts.
struct ExpertNumber {
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
};
ExpertNumber expert_number(const ExpertTruth& truth, std::uint64_t number);

// first, first + 1, ...
std::vector<std::uint32_t> run_of(std::uint32_t first, std::uint32_t count);

// Why no scenario can lease every slot of the service and still ask for more; nothing when it can.
std::optional<std::string> why_not_exhaustible(const ConformSetup& setup,
                                               const ConformScale& scale);
// Leases experts number 0, 1, ... until no slot is left; waits for them.
Status lease_every_slot(ConformClient& client, const ConformSetup& setup,
                        const ConformScale& scale);

// Whether `answer` is an error of `code`.
bool is_error(const std::optional<ipc::Envelope>& answer, ErrorCode code);
// "error 2: text", "no answer", "message 5 of the union"
std::string describe(const std::optional<ipc::Envelope>& answer);

}  // namespace k3::cli
