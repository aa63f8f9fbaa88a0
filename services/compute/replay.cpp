#include "services/compute/replay.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <variant>

#include "common/checkpoint/packed_trunk.h"
#include "common/checkpoint/work_folder.h"
#include "common/kernels/select.h"
#include "common/observe/bench_output.h"
#include "common/observe/memory.h"
#include "common/plan/compute_memory.h"
#include "services/compute/cpus.h"
#include "services/compute/local_experts.h"
#include "services/compute/local_trunk.h"
#include "services/compute/model.h"
#include "services/compute/pass_comparison.h"

namespace k3::compute {

namespace {

using Json = nlohmann::ordered_json;

// Of the trunk when it is read from the shards.
constexpr std::uint64_t kUnitBytes = 64'000'000;

// Complete passes one after another, with their numbers in the recording.
class Passes {
 public:
  static Result<Passes> open(const std::filesystem::path& path) {
    K3_ASSIGN(RecordingReader reader, RecordingReader::open(path));
    K3_ASSIGN(RecordedFrame first, reader.next());
    auto* start = std::get_if<RecordedStart>(&first);
    if (start == nullptr) {
      return fail(ErrorCode::kUsage, "{}: does not begin with a start frame", path.string());
    }
    return Passes(path, std::move(reader), std::move(*start));
  }

  const RecordedStart& start() const { return start_; }
  std::uint64_t number() const { return number_ - 1; }  // of the pass returned last
  std::uint64_t incomplete() const { return incomplete_; }
  bool full() const { return full_; }

  // The next one; false at the end. kUsage for frames out of order.
  Result<bool> next(WholePass& pass) {
    while (true) {
      K3_ASSIGN(RecordedFrame frame, reader_.next());
      if (auto* begun = std::get_if<RecordedPass>(&frame)) {
        incomplete_ += open_ ? 1 : 0;
        open_ = true;
        ++number_;
        pass = {.pass = std::move(*begun), .layers = {}, .done = {}};
      } else if (auto* layer = std::get_if<RecordedLayer>(&frame)) {
        if (!open_ || layer->layer != pass.layers.size()) return disorder("layer");
        pass.layers.push_back(std::move(*layer));
      } else if (auto* done = std::get_if<RecordedDone>(&frame)) {
        if (!open_ || pass.layers.size() != start_.layers) return disorder("done");
        open_ = false;
        pass.done = std::move(*done);
        return true;
      } else if (const auto* end = std::get_if<RecordedEnd>(&frame)) {
        incomplete_ += open_ ? 1 : 0;
        full_ = end->full;
        return false;
      } else {
        return disorder("start");
      }
    }
  }

 private:
  Passes(std::filesystem::path path, RecordingReader reader, RecordedStart start)
      : path_(std::move(path)), reader_(std::move(reader)), start_(std::move(start)) {}

  tl::unexpected<Error> disorder(const char* frame) const {
    return fail(ErrorCode::kUsage, "{}: a {} frame out of order after pass {}", path_.string(),
                frame, static_cast<std::int64_t>(number_) - 1);
  }

  std::filesystem::path path_;
  RecordingReader reader_;
  RecordedStart start_;
  std::uint64_t number_ = 0;
  std::uint64_t incomplete_ = 0;
  bool open_ = false;
  bool full_ = false;
};

// What a recording asks for, found by reading all of it.
struct Extent {
  std::size_t passes = 0;
  std::size_t most_rows = 1;
  std::map<std::uint32_t, std::uint64_t> positions;  // of the longest sequence, by session
};

Result<Extent> survey(const std::filesystem::path& path) {
  K3_ASSIGN(Passes passes, Passes::open(path));
  Extent extent;
  WholePass pass;
  while (true) {
    K3_ASSIGN(const bool more, passes.next(pass));
    if (!more) return extent;
    if (pass.pass.rows.empty()) {
      return fail(ErrorCode::kUsage, "{}: pass {} has no rows", path.string(), passes.number());
    }
    ++extent.passes;
    extent.most_rows = std::max(extent.most_rows, pass.pass.rows.size());
    for (const RecordedRow& row : pass.pass.rows) {
      std::uint64_t& longest = extent.positions[row.session];
      longest = std::max(longest, std::uint64_t{row.position} + 1);
    }
  }
}

Result<Checkpoint> open_model(const ReplayOptions& options, const RecordedStart& start) {
  std::optional<int> layers;
  if (start.layers != start.model_layers) layers = static_cast<int>(start.layers);
  K3_ASSIGN(Checkpoint checkpoint, Checkpoint::open(options.model, {layers}));
  if (checkpoint.fingerprint() != start.fingerprint ||
      checkpoint.config().layers != static_cast<int>(start.layers)) {
    return fail(ErrorCode::kIncompatible,
                "{} is of model {} with {} layers, {} is {} with {} layers",
                options.recording.string(), start.fingerprint, start.layers, options.model.string(),
                checkpoint.fingerprint(), checkpoint.config().layers);
  }
  return checkpoint;
}

Status check_memory(const ModelConfig& config, const Extent& extent, std::uint64_t unit_bytes,
                    std::uint64_t expert_buffers) {
  std::uint64_t sequences = 0;
  for (const auto& [session, positions] : extent.positions) {
    sequences += sequence_bytes(config, positions);
  }
  return check_plan({{"activations", activation_bytes(config, extent.most_rows)},
                     {"sequences", sequences},
                     {"trunk units", 2 * unit_bytes},
                     {"experts", expert_buffers}},
                    read_memory_limits());
}

// The rows of a pass over `sessions`; one that begins at position 0 begins anew.
Result<std::vector<Row>> rows_of(const WholePass& pass, std::uint64_t number, const Model& model,
                                 std::map<std::uint32_t, Session>& sessions) {
  std::vector<Row> rows;
  std::map<std::uint32_t, std::uint32_t> next;  // position, by session
  for (const RecordedRow& row : pass.pass.rows) {
    Session& session = sessions.try_emplace(row.session, model.new_session()).first->second;
    const auto [due, first] = next.try_emplace(row.session, session.length());
    if (first && row.position == 0) {
      session.reset();
      due->second = 0;
    }
    if (row.position != due->second++) {
      return fail(ErrorCode::kUsage, "pass {} row {}: position {} of session {} where {} is due",
                  number, rows.size(), row.position, row.session, due->second - 1);
    }
    rows.push_back({row.id, &session, row.position, row.logits_wanted});
  }
  return rows;
}

Json report_row(const std::string& layer, const std::string& kind, const LayerTimes& times) {
  const auto& seconds = times.seconds;
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  const double p50 = seconds.empty() ? 0 : 1e3 * percentile(seconds, 50);
  const double most = seconds.empty() ? 0 : 1e3 * percentile(seconds, 100);
  const double waited = static_cast<double>(times.waited_ns) / 1e9;
  fmt::print("{:<6} {:<10} {:>7} {:>10.3f} {:>10.3f} {:>10.3f} {:>10.3f}\n", layer, kind,
             seconds.size(), p50, most, total, waited);
  return {{"layer", layer}, {"kind", kind},     {"passes", seconds.size()}, {"p50_ms", p50},
          {"max_ms", most}, {"seconds", total}, {"waited_seconds", waited}};
}

Json print_times(const ModelConfig& config, const std::vector<LayerTimes>& times) {
  fmt::print("{:<6} {:<10} {:>7} {:>10} {:>10} {:>10} {:>10}\n", "layer", "kind", "passes",
             "p50 ms", "max ms", "total s", "waiting s");
  Json rows = Json::array();
  for (int layer = 0; layer < config.layers; ++layer) {
    const char* attention = config.attention[layer] == Attention::kKda ? "kda" : "mla";
    rows.push_back(report_row(fmt::format("{}", layer),
                              fmt::format("{} {}", attention, config.moe(layer) ? "moe" : "dense"),
                              times[layer]));
  }
  rows.push_back(report_row("head", "", times.back()));
  return rows;
}

}  // namespace

Status replay(const ReplayOptions& options) {
  K3_ASSIGN(const kernels::KernelTable* table, kernels::select_table(options.isa));
  K3_ASSIGN(const Extent extent, survey(options.recording));
  K3_ASSIGN(Passes passes, Passes::open(options.recording));
  K3_ASSIGN(const Checkpoint checkpoint, open_model(options, passes.start()));
  ModelConfig config = checkpoint.config();
  config.mla_norm_eps = passes.start().mla_norm_eps;
  K3_ASSIGN(UnitTable units, options.trunk ? open_packed_trunk(*options.trunk, checkpoint)
                                           : unit_table_over_shards(checkpoint, kUnitBytes));
  K3_ASSIGN(ExpertIndex index,
            read_expert_index(work_folder(options.work, checkpoint), checkpoint));
  K3_TRY(check_memory(config, extent, units.largest_unit_bytes(),
                      LocalExperts::kBuffers * index.expert_bytes()));
  K3_ASSIGN(const auto trunk, LocalTrunk::open(checkpoint, std::move(units)));
  K3_ASSIGN(const auto experts, LocalExperts::open(config, std::move(index)));
  const kernels::Multiplier multiplier(*table,
                                       options.threads > 0 ? options.threads : usable_cores());
  Model model(config, extent.most_rows, multiplier, *trunk, *experts, [] { return Status{}; });
  PassComparison comparison(static_cast<std::size_t>(config.layers),
                            static_cast<std::size_t>(config.hidden),
                            static_cast<std::size_t>(config.vocab),
                            [&] { return trunk->waited_ns() + experts->waited_ns(); });
  model.observe(&comparison);

  std::map<std::uint32_t, Session> sessions;
  WholePass pass;
  while (true) {
    K3_ASSIGN(const bool more, passes.next(pass));
    if (!more) break;
    K3_ASSIGN(const std::vector<Row> rows, rows_of(pass, passes.number(), model, sessions));
    comparison.expect(passes.number(), pass);
    K3_TRY(model.forward(rows, false));
  }
  fmt::print("{} passes equal bit for bit, {} incomplete ones not run{}; {} threads, {}\n",
             extent.passes, passes.incomplete(), passes.full() ? ", the recording is full" : "",
             multiplier.threads(), table->name);
  const Json rows = print_times(config, comparison.times());
  if (!options.json) return {};
  const Json report = {{"recording", options.recording.string()},
                       {"passes", extent.passes},
                       {"incomplete", passes.incomplete()},
                       {"full", passes.full()},
                       {"threads", multiplier.threads()},
                       {"isa", table->name},
                       {"rows", rows}};
  return write_report(*options.json, report.dump(2) + "\n");
}

}  // namespace k3::compute
