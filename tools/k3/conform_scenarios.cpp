// What several scenarios share.
#include "tools/k3/conform_scenarios.h"

#include <algorithm>
#include <numeric>
#include <variant>

namespace k3::cli {

ExpertNumber expert_number(const ExpertTruth& truth, std::uint64_t number) {
  return {truth.first_layer() + static_cast<std::uint32_t>(number / truth.experts()),
          static_cast<std::uint32_t>(number % truth.experts())};
}

std::vector<std::uint32_t> run_of(std::uint32_t first, std::uint32_t count) {
  std::vector<std::uint32_t> run(count);
  std::iota(run.begin(), run.end(), first);
  return run;
}

std::optional<std::string> why_not_exhaustible(const ConformSetup& setup,
                                               const ConformScale& scale) {
  const std::uint64_t total = setup.truth.total_experts();
  if (scale.slots >= total) {
    return fmt::format("{} slots hold all {} experts: nobody ever waits", scale.slots, total);
  }
  const std::uint64_t bytes = scale.slots * setup.truth.expert_bytes();
  if (bytes > scale.budget_bytes) {
    return fmt::format("leasing all {} slots reads {} bytes: needs --full", scale.slots, bytes);
  }
  return std::nullopt;
}

Status lease_every_slot(ConformClient& client, const ConformSetup& setup,
                        const ConformScale& scale) {
  for (std::uint64_t next = 0; next < scale.slots;) {
    const ExpertNumber first = expert_number(setup.truth, next);
    const auto count = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(setup.truth.experts() - first.expert, scale.slots - next));
    K3_TRY(client.demand(first.layer, run_of(first.expert, count)));
    next += count;
  }
  return {};
}

bool is_error(const std::optional<ipc::Envelope>& answer, ErrorCode code) {
  const auto* error = answer ? std::get_if<ipc::ErrorReply>(&answer->body) : nullptr;
  return error != nullptr && error->error.code == code;
}

std::string describe(const std::optional<ipc::Envelope>& answer) {
  if (!answer) return "no answer";
  if (const auto* error = std::get_if<ipc::ErrorReply>(&answer->body)) {
    return fmt::format("error {} \"{}\"", static_cast<int>(error->error.code),
                       error->error.message);
  }
  return fmt::format("message {} of the union", answer->body.index());
}

}  // namespace k3::cli
