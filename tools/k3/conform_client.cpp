#include "tools/k3/conform_client.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

namespace k3::cli {
namespace {

constexpr std::array<const char*, kExpertParts> kPartNames = {
    "w1 packed", "w1 scales", "w2 packed", "w2 scales", "w3 packed", "w3 scales"};

std::string where(std::uint64_t batch, std::uint32_t layer, std::uint32_t expert) {
  return fmt::format("batch {} layer {} expert {}", batch, layer, expert);
}

std::uint64_t descriptor_bytes(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
}

}  // namespace

Result<std::unique_ptr<ConformClient>> ConformClient::connect(const ConformSetup& setup) {
  K3_ASSIGN(ConformPeer peer, ConformPeer::open(setup.endpoint, setup.limit, setup.findings));
  std::unique_ptr<ConformClient> client(new ConformClient(setup, std::move(peer)));
  K3_TRY(client->greet());
  return client;
}

Status ConformClient::greet() {
  K3_TRY(peer_.send(ipc::Hello{"conform", setup_.truth.checkpoint().fingerprint()}));
  K3_ASSIGN(const std::optional<ipc::Envelope> answer, peer_.receive());
  if (!answer) return fail(ErrorCode::kFailed, "no answer to Hello within the limit");
  if (const auto* error = std::get_if<ipc::ErrorReply>(&answer->body)) {
    return fail(error->error.code, "Hello is refused: {}", error->error.message);
  }
  const auto* welcome = std::get_if<ipc::Welcome>(&answer->body);
  if (welcome == nullptr) return fail(ErrorCode::kFailed, "Hello is not answered by Welcome");
  welcome_ = *welcome;
  incarnation_ = answer->header.incarnation;
  setup_.findings.expect(
      Clause::kWelcome, answer->header.in_reply_to == 1 && incarnation_ != 0,
      "Welcome in reply to {} of incarnation {}, expected 1 and a number that is "
      "not 0",
      answer->header.in_reply_to, incarnation_);
  return map_regions();
}

Status ConformClient::map_regions() {
  Findings& findings = setup_.findings;
  K3_ASSIGN(auto received, peer_.take_regions(std::chrono::milliseconds{0}));
  if (!received) return fail(ErrorCode::kFailed, "Welcome came before the regions");
  for (ipc::ReceivedRegion& region : *received) {
    const std::uint64_t holds = descriptor_bytes(region.fd.get());
    findings.expect(Clause::kRegions, region.bytes > 0 && region.bytes <= holds,
                    "region {} is announced with {} bytes, its descriptor holds {}", region.region,
                    region.bytes, holds);
    findings.expect(Clause::kRegions, region.generation != 0, "region {} has generation 0",
                    region.region);
    Result<MappedRegion> mapping =
        MappedRegion::map(std::move(region.fd), std::min(region.bytes, holds), region.kind);
    findings.expect(Clause::kRegions, mapping.has_value(), "region {}: {}", region.region,
                    mapping ? std::string() : mapping.error().message);
    Region known{region.generation, region.bytes, {}};
    if (mapping) known.mapping = std::move(*mapping);
    const bool is_new = regions_.emplace(region.region, std::move(known)).second;
    findings.expect(Clause::kRegions, is_new, "region {} is announced twice", region.region);
  }
  return {};
}

std::set<std::uint64_t> ConformClient::generations() const {
  std::set<std::uint64_t> all;
  for (const auto& [number, region] : regions_) all.insert(region.generation);
  return all;
}

Result<std::optional<ipc::Envelope>> ConformClient::ask(const ipc::Message& message) {
  K3_ASSIGN(const std::uint64_t sequence, peer_.send(message));
  K3_TRY(fence());
  auto node = answers_.extract(sequence);
  if (node.empty()) return std::nullopt;
  return std::optional(std::move(node.mapped()));
}

Status ConformClient::fence() {
  K3_ASSIGN(const std::uint64_t sequence, peer_.send(ipc::DescribeExperts{}));
  while (!answers_.contains(sequence)) K3_TRY(handle_next());
  answers_.erase(sequence);
  abandoned_.merge(cancelled_);
  cancelled_.clear();
  return {};
}

Result<ipc::ExpertsDescription> ConformClient::describe() {
  K3_ASSIGN(const std::optional<ipc::Envelope> answer, ask(ipc::DescribeExperts{}));
  const auto* description = answer ? std::get_if<ipc::ExpertsDescription>(&answer->body) : nullptr;
  if (description == nullptr) {
    return fail(ErrorCode::kFailed, "describeExperts is not answered by expertsDescription");
  }
  return *description;
}

Result<std::map<std::string, std::uint64_t>> ConformClient::counters() {
  K3_ASSIGN(const std::optional<ipc::Envelope> answer, ask(ipc::StatsRequest{}));
  const auto* stats = answer ? std::get_if<ipc::Stats>(&answer->body) : nullptr;
  if (stats == nullptr) return fail(ErrorCode::kFailed, "statsRequest is not answered by stats");
  std::map<std::string, std::uint64_t> counters;
  for (const ipc::Counter& counter : stats->counters) counters[counter.name] = counter.value;
  return counters;
}

Result<std::optional<Error>> ConformClient::unasked_error() {
  while (unasked_.empty()) {
    K3_ASSIGN(const std::optional<ipc::Envelope> envelope, peer_.receive());
    if (!envelope) return std::nullopt;
    K3_TRY(handle(*envelope));
  }
  const Error error = unasked_.front();
  unasked_.erase(unasked_.begin());
  return error;
}

// --- what the service says ---

Status ConformClient::handle_next() {
  K3_ASSIGN(const std::optional<ipc::Envelope> envelope, peer_.receive());
  if (!envelope) {
    return fail(ErrorCode::kFailed, "no answer within {} ms", peer_.limit().count());
  }
  return handle(*envelope);
}

Status ConformClient::handle(const ipc::Envelope& envelope) {
  if (const auto* arrived = std::get_if<ipc::Arrived>(&envelope.body)) {
    on_arrived(*arrived);
  } else if (const auto* failed = std::get_if<ipc::ExpertFailed>(&envelope.body)) {
    on_failed(*failed);
  } else if (envelope.header.in_reply_to != 0) {
    for (auto& [number, batch] : batches_) {
      if (batch.sequence == envelope.header.in_reply_to) batch.refused = true;
    }
    answers_[envelope.header.in_reply_to] = envelope;
  } else if (const auto* error = std::get_if<ipc::ErrorReply>(&envelope.body)) {
    unasked_.push_back(error->error);
  } else {
    return fail(ErrorCode::kFailed, "message number {} of the union came unasked",
                envelope.body.index());
  }
  return {};
}

void ConformClient::on_arrived(const ipc::Arrived& arrived) {
  const auto found = batches_.find(arrived.batch);
  if (found != batches_.end()) {
    for (const ipc::ArrivedExpert& expert : arrived.experts) {
      on_expert(arrived.batch, found->second, expert);
    }
    return;
  }
  if (cancelled_.contains(arrived.batch)) return;  // it crossed the release on its way
  Findings& findings = setup_.findings;
  if (abandoned_.contains(arrived.batch)) {
    findings.expect(Clause::kRelease, false, "experts of batch {} after its release",
                    arrived.batch);
  } else if (arrived.batch < next_batch_) {
    findings.expect(Clause::kOnce, false, "experts of batch {}, which was complete and is released",
                    arrived.batch);
  } else {
    findings.expect(Clause::kBatch, false, "experts of batch {}, which was never opened",
                    arrived.batch);
  }
}

void ConformClient::on_expert(std::uint64_t number, ConformBatch& batch,
                              const ipc::ArrivedExpert& expert) {
  Findings& findings = setup_.findings;
  if (!findings.expect(Clause::kBatch, batch.experts.contains(expert.expert) && !batch.refused,
                       "{}, which this batch does not ask for",
                       where(number, batch.layer, expert.expert))) {
    return;
  }
  if (!findings.expect(Clause::kOnce, batch.due.erase(expert.expert) == 1, "{} came again",
                       where(number, batch.layer, expert.expert))) {
    return;
  }
  check_parts(number, expert);
  batch.arrived[expert.expert] = expert;
  if (const auto bytes = bytes_of(expert)) batch.held[expert.expert] = sums_of(*bytes);
}

void ConformClient::on_failed(const ipc::ExpertFailed& failed) {
  const auto found = batches_.find(failed.batch);
  setup_.findings.expect(Clause::kComplete, false, "{} failed although the shards can be read: {}",
                         where(failed.batch, failed.layer, failed.expert), failed.error.message);
  if (found != batches_.end()) found->second.due.erase(failed.expert);
}

void ConformClient::check_parts(std::uint64_t number, const ipc::ArrivedExpert& expert) {
  Findings& findings = setup_.findings;
  const std::string place = where(number, batches_.at(number).layer, expert.expert);
  if (!findings.expect(Clause::kReferences, expert.parts.size() == kExpertParts,
                       "{} has {} parts, expected {}", place, expert.parts.size(), kExpertParts)) {
    return;
  }
  for (int part = 0; part < kExpertParts; ++part) {
    const ipc::Ref& ref = expert.parts[part];
    const auto region = regions_.find(ref.region);
    if (!findings.expect(Clause::kReferences, region != regions_.end(),
                         "{} {} lies in region {}, which was not handed over", place,
                         kPartNames[part], ref.region)) {
      continue;
    }
    const std::uint64_t bytes = region->second.bytes;
    findings.expect(Clause::kReferences, ref.offset <= bytes && ref.length <= bytes - ref.offset,
                    "{} {} is {} bytes at {} of region {}, which has {}", place, kPartNames[part],
                    ref.length, ref.offset, ref.region, bytes);
    findings.expect(Clause::kReferences, ref.length == setup_.truth.part_bytes(part),
                    "{} {} has {} bytes, expected {}", place, kPartNames[part], ref.length,
                    setup_.truth.part_bytes(part));
    findings.expect(Clause::kGeneration, ref.generation == region->second.generation,
                    "{} {} is of generation {:016x}, region {} of {:016x}", place, kPartNames[part],
                    ref.generation, ref.region, region->second.generation);
  }
}

std::optional<std::array<std::span<const std::byte>, kExpertParts>> ConformClient::bytes_of(
    const ipc::ArrivedExpert& expert) const {
  if (expert.parts.size() != kExpertParts) return std::nullopt;
  std::array<std::span<const std::byte>, kExpertParts> parts;
  for (int part = 0; part < kExpertParts; ++part) {
    const ipc::Ref& ref = expert.parts[part];
    const auto region = regions_.find(ref.region);
    if (region == regions_.end() || !region->second.mapping) return std::nullopt;
    const std::span<const std::byte> all = region->second.mapping->data();
    if (ref.offset > all.size() || ref.length > all.size() - ref.offset) return std::nullopt;
    parts[part] = all.subspan(ref.offset, ref.length);
  }
  return parts;
}

// --- batches ---

Result<std::uint64_t> ConformClient::fetch(std::uint32_t layer,
                                           const std::vector<std::uint32_t>& experts,
                                           std::uint8_t urgency) {
  const std::uint64_t number = next_batch_;
  K3_TRY(fetch_as(number, layer, experts, urgency));
  return number;
}

Status ConformClient::fetch_as(std::uint64_t number, std::uint32_t layer,
                               const std::vector<std::uint32_t>& experts, std::uint8_t urgency) {
  ConformBatch batch;
  batch.layer = layer;
  batch.experts = {experts.begin(), experts.end()};
  batch.due = batch.experts;
  K3_ASSIGN(batch.sequence, peer_.send(ipc::Fetch{number, layer, experts, urgency}));
  batches_[number] = std::move(batch);
  cancelled_.erase(number);
  abandoned_.erase(number);
  next_batch_ = std::max(next_batch_, number + 1);
  return {};
}

Status ConformClient::wait(std::uint64_t batch, Clause incomplete) {
  const ConformBatch& it = batches_.at(batch);
  while (!it.due.empty() && !it.refused) {
    K3_ASSIGN(const std::optional<ipc::Envelope> envelope, peer_.receive());
    if (!envelope) break;
    K3_TRY(handle(*envelope));
  }
  setup_.findings.expect(incomplete, it.due.empty(), "{} {} within {} ms",
                         where(batch, it.layer, it.due.empty() ? 0 : *it.due.begin()),
                         it.refused ? "is refused" : "did not arrive", peer_.limit().count());
  return check_bytes(batch);
}

Status ConformClient::check_bytes(std::uint64_t number) {
  const ConformBatch& batch = batches_.at(number);
  for (const auto& [expert, sums] : batch.held) {
    K3_ASSIGN(const ExpertTruth::Sums truth, setup_.truth.sums(batch.layer, expert));
    for (int part = 0; part < kExpertParts; ++part) {
      setup_.findings.expect(Clause::kBytes, sums[part] == truth[part],
                             "{} {} has checksum {:016x}, in the shards {:016x}",
                             where(number, batch.layer, expert), kPartNames[part], sums[part],
                             truth[part]);
    }
  }
  return {};
}

Result<std::uint64_t> ConformClient::demand(std::uint32_t layer,
                                            const std::vector<std::uint32_t>& experts) {
  K3_ASSIGN(const std::uint64_t batch, fetch(layer, experts));
  K3_TRY(wait(batch));
  return batch;
}

void ConformClient::check_held(std::uint64_t number) {
  const ConformBatch& batch = batches_.at(number);
  for (const auto& [expert, sums] : batch.held) {
    const auto bytes = bytes_of(batch.arrived.at(expert));
    setup_.findings.expect(Clause::kLeases, bytes && sums_of(*bytes) == sums,
                           "{} changed while it was leased", where(number, batch.layer, expert));
  }
}

Status ConformClient::release(std::uint64_t number) {
  const auto node = batches_.extract(number);
  if (!node.empty() && !node.mapped().due.empty()) cancelled_.insert(number);
  K3_TRY(peer_.send(ipc::BatchRelease{number}));
  return {};
}

Status ConformClient::release_all() {
  while (!batches_.empty()) K3_TRY(release(batches_.begin()->first));
  return fence();
}

std::size_t ConformClient::experts_held() const {
  std::size_t held = 0;
  for (const auto& [number, batch] : batches_) held += batch.arrived.size();
  return held;
}

}  // namespace k3::cli
