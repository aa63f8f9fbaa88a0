#include "services/experts/replay.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "common/observe/bench_output.h"
#include "services/experts/expert_trace.h"

namespace k3::experts {
namespace {

using Json = nlohmann::ordered_json;
constexpr ExpertCache::ClientId kClient = 1;

// Of the records of one phase.
struct Tally {
  std::uint64_t experts = 0;
  std::uint64_t hits = 0;
  std::uint64_t bytes_read = 0;
  std::vector<double> seconds;  // of each record, from its demand until all of it has come

  double wall() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }
};

// Cache and reader of a service without its server.
class Replay {
 public:
  explicit Replay(ExpertsService::Parts parts)
      : parts_(std::move(parts)),
        pool_(parts_.arena.data(), parts_.plan.slots, parts_.plan.slot_bytes),
        cache_(parts_.shape, pool_, std::move(parts_.policy),
               {[this](const ExpertCache::Read& read) {
                  parts_.engine->submit(read_job(parts_, pool_, read));
                },
                [this](std::uint64_t, std::uint64_t, const std::vector<ExpertCache::Arrival>& it) {
                  arrived_ += it.size();
                },
                [this](std::uint64_t, std::uint64_t, ExpertId, const Error& error) {
                  failure_ = tl::unexpected<Error>(error);
                }}) {}
  ~Replay() { parts_.engine.reset(); }  // joins the readers while their buffers still exist
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  Status ask(const TraceRecord& record, Tally& tally) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t at = 0; at < record.experts.size(); at += pool_.slots()) {
      const std::size_t end = std::min(record.experts.size(), at + pool_.slots());
      K3_TRY(ask_round({++batch_,
                        record.layer,
                        {record.experts.begin() + static_cast<std::ptrdiff_t>(at),
                         record.experts.begin() + static_cast<std::ptrdiff_t>(end)},
                        0},
                       tally));
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    tally.seconds.push_back(taken.count());
    tally.experts += record.experts.size();
    return {};
  }

  std::size_t slots() const { return pool_.slots(); }
  ExpertCache::Counters counters() const { return cache_.counters(); }

 private:
  Status ask_round(const ipc::Fetch& fetch, Tally& tally) {
    const std::uint64_t hits = cache_.counters().hits;
    arrived_ = 0;
    K3_TRY(cache_.fetch(kClient, fetch));
    while (arrived_ < fetch.experts.size()) {
      pollfd ready{parts_.engine->done_fd(), POLLIN, 0};
      ::poll(&ready, 1, -1);
      std::vector<ExpertCache::ReadEnd> ends;
      for (ReadDone& done : parts_.engine->take_done()) {
        tally.bytes_read += done.bytes;
        ends.push_back({static_cast<ExpertId>(done.id), std::move(done.status)});
      }
      cache_.reads_ended(ends);
      K3_TRY(failure_);
    }
    cache_.release(kClient, fetch.batch);
    tally.hits += cache_.counters().hits - hits;
    return {};
  }

  ExpertsService::Parts parts_;
  SlotPool pool_;
  ExpertCache cache_;
  std::uint64_t batch_ = 0;
  std::size_t arrived_ = 0;
  Status failure_;
};

// Prints the row of a phase and returns it.
Json row(TracePhase phase, const Tally& tally) {
  const double hit_percent =
      100 * static_cast<double>(tally.hits) / static_cast<double>(tally.experts);
  const double rate = static_cast<double>(tally.bytes_read) / 1e9 / tally.wall();
  const auto ms = [&](double percent) { return 1e3 * percentile(tally.seconds, percent); };
  fmt::print("{:<8} {:>9} {:>9} {:>9} {:>7.2f} {:>8.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f}\n",
             name_of(phase), tally.seconds.size(), tally.experts, tally.hits, hit_percent, rate,
             ms(50), ms(90), ms(99), ms(100));
  return {{"phase", name_of(phase)},
          {"fetches", tally.seconds.size()},
          {"experts", tally.experts},
          {"hits", tally.hits},
          {"misses", tally.experts - tally.hits},
          {"hit_percent", hit_percent},
          {"bytes_read", tally.bytes_read},
          {"seconds", tally.wall()},
          {"gb_per_second", rate},
          {"latency_ms", {{"p50", ms(50)}, {"p90", ms(90)}, {"p99", ms(99)}, {"max", ms(100)}}}};
}

}  // namespace

Status replay(const ReplayOptions& options) {
  K3_ASSIGN(const Checkpoint checkpoint,
            Checkpoint::open(options.service.model, {options.service.layers}));
  K3_ASSIGN(const std::vector<TraceRecord> trace,
            read_trace(options.trace, static_cast<std::size_t>(checkpoint.config().top_k)));
  K3_ASSIGN(ExpertsService::Parts parts, ExpertsService::open(options.service));
  Replay player(std::move(parts));
  std::array<Tally, 3> tallies;
  for (const TraceRecord& record : trace) {
    K3_TRY(player.ask(record, tallies[static_cast<std::size_t>(record.phase)]));
  }
  fmt::print("{} slots, policy {}, {} reader threads, an empty cache at first\n", player.slots(),
             options.service.policy, options.service.io_threads);
  fmt::print("{:<8} {:>9} {:>9} {:>9} {:>7} {:>8} {:>9} {:>9} {:>9} {:>9}\n", "phase", "fetches",
             "experts", "hits", "hits %", "GB/s", "p50 ms", "p90 ms", "p99 ms", "max ms");
  Json rows = Json::array();
  for (std::size_t i = 0; i < tallies.size(); ++i) {
    if (tallies[i].experts > 0) rows.push_back(row(static_cast<TracePhase>(i), tallies[i]));
  }
  if (!options.json) return {};
  const Json report = {{"trace", options.trace.string()},
                       {"policy", options.service.policy},
                       {"slots", player.slots()},
                       {"io_threads", options.service.io_threads},
                       {"evictions", player.counters().evictions},
                       {"rows", rows}};
  return write_report(*options.json, report.dump(2) + "\n");
}

}  // namespace k3::experts
