#include "services/experts/cache_simulation.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "services/experts/replacement_policy.h"

namespace k3::experts {
namespace {

// The layers with experts and the experts of each, as far as the trace shows them.
struct Extent {
  std::uint32_t first_layer = 0;
  std::uint64_t layers = 0;
  std::uint64_t experts = 0;
};

Extent extent_of(std::span<const TraceRecord> trace) {
  Extent extent;
  if (trace.empty()) return extent;
  const auto [first, last] = std::ranges::minmax(trace, {}, &TraceRecord::layer);
  extent.first_layer = first.layer;
  extent.layers = std::uint64_t{last.layer} - first.layer + 1;
  for (const TraceRecord& record : trace) {
    for (const std::uint32_t expert : record.experts) {
      extent.experts = std::max<std::uint64_t>(extent.experts, expert + 1ULL);
    }
  }
  return extent;
}

constexpr std::uint64_t kMostExperts = 1 << 24;  // of the trace's model

bool counts(const TraceRecord& record) { return record.phase != TracePhase::kPrefill; }

// Each once.
std::vector<ExpertId> ids_of(const TraceRecord& record, const Extent& extent) {
  const auto experts_per_layer = static_cast<std::uint32_t>(extent.experts);
  std::vector<ExpertId> ids;
  for (const std::uint32_t expert : record.experts) {
    const ExpertId id = (record.layer - extent.first_layer) * experts_per_layer + expert;
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

// Demands at most `slots` experts and returns how many were resident.
std::uint64_t demand(ReplacementPolicy& policy, std::unordered_set<ExpertId>& resident,
                     std::size_t slots, std::span<const ExpertId> ids) {
  policy.demand(ids);
  const auto needed = [&](ExpertId id) { return std::ranges::find(ids, id) != ids.end(); };
  std::vector<ExpertId> absent;
  for (const ExpertId id : ids) {
    if (!resident.contains(id)) absent.push_back(id);
  }
  for (const ExpertId id : absent) {
    if (resident.size() == slots) {
      const ExpertId victim = policy.victim([&](ExpertId other) { return !needed(other); }).value();
      policy.erase(victim);
      resident.erase(victim);
    }
    policy.insert(id);
    resident.insert(id);
  }
  return ids.size() - absent.size();
}

}  // namespace

double SimulatedHits::percent() const {
  return experts == 0 ? 0 : 100 * static_cast<double>(hits) / static_cast<double>(experts);
}

Result<SimulatedHits> simulate(std::span<const TraceRecord> trace, std::size_t slots,
                               std::string_view name) {
  const Extent extent = extent_of(trace);
  if (extent.layers > kMostExperts || extent.layers * extent.experts > kMostExperts) {
    return fail(ErrorCode::kUsage, "a trace of {} layers of {} experts: at most {} are simulated",
                extent.layers, extent.experts, kMostExperts);
  }
  K3_ASSIGN(const auto policy, make_policy(name, static_cast<std::uint32_t>(extent.layers),
                                           static_cast<std::uint32_t>(extent.experts)));
  std::unordered_set<ExpertId> resident;
  SimulatedHits result;
  for (const TraceRecord& record : trace) {
    const std::vector<ExpertId> ids = ids_of(record, extent);
    for (std::size_t at = 0; at < ids.size(); at += slots) {
      const std::span<const ExpertId> round(ids.data() + at, std::min(slots, ids.size() - at));
      const std::uint64_t hits = demand(*policy, resident, slots, round);
      if (!counts(record)) continue;
      result.experts += round.size();
      result.hits += hits;
    }
  }
  return result;
}

SimulatedHits simulate_belady(std::span<const TraceRecord> trace, std::size_t slots) {
  struct Use {
    ExpertId id = 0;
    bool counts = false;
    std::size_t next = 0;  // of the same expert
  };
  const Extent extent = extent_of(trace);
  std::vector<Use> uses;
  for (const TraceRecord& record : trace) {
    for (const ExpertId id : ids_of(record, extent))
      uses.push_back({id, counts(record)});
  }
  std::unordered_map<ExpertId, std::size_t> later;
  for (std::size_t i = uses.size(); i-- > 0;) {
    const auto found = later.find(uses[i].id);
    // An expert that is not used again: at a place of its own behind the end.
    uses[i].next = found == later.end() ? uses.size() + i : found->second;
    later[uses[i].id] = i;
  }
  std::set<std::size_t> resident;  // by the place of the next use
  SimulatedHits result;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const bool hit = resident.erase(i) > 0;
    if (!hit && resident.size() == slots) resident.erase(std::prev(resident.end()));
    resident.insert(uses[i].next);
    result.experts += uses[i].counts ? 1 : 0;
    result.hits += hit && uses[i].counts ? 1 : 0;
  }
  return result;
}

Result<std::vector<TraceRecord>> last_sweep(std::span<const TraceRecord> trace) {
  std::vector<std::size_t> begins;  // of the sweeps
  for (std::size_t i = 0; i < trace.size(); ++i) {
    if (i == 0 || trace[i].layer < trace[i - 1].layer) begins.push_back(i);
  }
  if (begins.empty()) return std::vector<TraceRecord>{};
  const auto in_first = [&](std::size_t i) { return begins.size() < 2 || i < begins[1]; };
  std::size_t prompt = 0;
  while (prompt < trace.size() && in_first(prompt) && trace[prompt].layer == trace[0].layer) {
    ++prompt;
  }
  std::map<std::uint32_t, std::vector<TraceRecord>> layers;
  for (const TraceRecord& record : trace.subspan(begins.back())) {
    layers[record.layer].push_back(record);
  }
  const std::size_t positions = layers.begin()->second.size();
  for (const auto& [layer, records] : layers) {
    if (records.size() == positions && positions >= prompt) continue;
    return fail(ErrorCode::kUsage,
                "the last sweep has {} records of layer {}, {} of its first layer and {} in the "
                "first sweep: not a trace of whole prefixes",
                records.size(), layer, positions, prompt);
  }
  std::vector<TraceRecord> incremental;
  for (auto& [layer, records] : layers) {
    for (std::size_t at = 0; at < prompt; ++at) {
      records[at].phase = TracePhase::kPrefill;
      incremental.push_back(records[at]);
    }
  }
  for (std::size_t at = prompt; at < positions; ++at) {
    for (auto& [layer, records] : layers) {
      records[at].phase = TracePhase::kDecode;
      incremental.push_back(records[at]);
    }
  }
  return incremental;
}

}  // namespace k3::experts
