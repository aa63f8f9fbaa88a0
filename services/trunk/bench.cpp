#include "services/trunk/bench.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/arena/arena.h"
#include "common/observe/bench_output.h"
#include "common/observe/memory.h"
#include "services/trunk/device_rate.h"

namespace k3::trunk {
namespace {

using Json = nlohmann::ordered_json;

// The first units of a pass, as many as the limit allows but at least one.
struct Workload {
  UnitTable table;
  std::size_t units = 0;
  std::uint64_t bytes = 0;  // read
  std::vector<FileSpan> spans;
  std::set<std::filesystem::path> files;  // of these units
};

Result<Workload> workload(const BenchOptions& options, double unit_mb) {
  TrunkService::Options service = options.service;
  service.unit_mb = unit_mb;
  K3_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(service.model, {service.layers}));
  Workload work;
  K3_ASSIGN(work.table, open_unit_table(service, checkpoint));
  for (const Unit& unit : work.table.units) {
    std::uint64_t bytes = 0;
    for (const UnitExtent& extent : unit.extents) bytes += extent.length;
    if (work.units > 0 && static_cast<double>(work.bytes + bytes) > options.gb * 1e9) break;
    ++work.units;
    work.bytes += bytes;
    for (const UnitExtent& extent : unit.extents) {
      work.spans.push_back({work.table.files[extent.file], extent.offset, extent.length});
      work.files.insert(work.table.files[extent.file]);
    }
  }
  return work;
}

Result<std::uint64_t> make_cold(const Workload& work) {
  std::uint64_t stayed = 0;
  for (const std::filesystem::path& file : work.files) {
    K3_ASSIGN(const std::uint64_t bytes, drop_from_page_cache(file));
    stayed += bytes;
  }
  return stayed;
}

// Seconds to read all units with at most `depth` in flight.
Result<double> read_units(const Workload& work, std::size_t depth, std::size_t threads) {
  const std::uint64_t slot_bytes = (work.table.largest_unit_bytes() + 4095) / 4096 * 4096;
  K3_TRY(check_plan({{"units in flight", slot_bytes * depth}}, read_memory_limits()));
  K3_ASSIGN(Arena arena, Arena::create("k3-trunk-bench", slot_bytes * depth));
  // Pages that are in use already, as in a running service.
  std::ranges::fill(arena.data(), std::byte{0});
  K3_ASSIGN(const std::unique_ptr<ReadEngine> engine, ReadEngine::create({threads}));
  for (const std::filesystem::path& path : work.table.files) K3_TRY(engine->add_file(path));

  std::vector<std::size_t> slot_of(work.units);
  std::size_t next = 0;
  const auto submit = [&](std::size_t slot) {
    const Unit& unit = work.table.units[next];
    ReadJob job{next, fmt::format("unit {}", next), {}, unit.checksum, true};
    for (const UnitExtent& extent : unit.extents) {
      job.extents.push_back(
          {extent.file, extent.offset,
           arena.data().subspan(slot * slot_bytes + extent.unit_offset, extent.length)});
    }
    slot_of[next++] = slot;
    engine->submit(std::move(job));
  };
  const auto begin = std::chrono::steady_clock::now();
  while (next < std::min(depth, work.units)) submit(next);
  for (std::size_t done = 0; done < work.units;) {
    pollfd ready{engine->done_fd(), POLLIN, 0};
    ::poll(&ready, 1, -1);
    for (const ReadDone& end : engine->take_done()) {
      K3_TRY(end.status);
      ++done;
      if (next < work.units) submit(slot_of[end.id]);
    }
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Result<Json> measure(const BenchOptions& options, const Workload& work, double unit_mb,
                     std::size_t depth) {
  const std::size_t threads = options.service.io_threads;
  std::vector<double> rates;
  std::vector<double> device_rates;
  std::uint64_t stayed = 0;
  bool direct = true;
  for (int i = 0; i < options.repeat; ++i) {
    K3_TRY(make_cold(work));
    K3_ASSIGN(const DeviceRate device, measure_device(work.spans, threads));
    device_rates.push_back(static_cast<double>(device.bytes) / 1e9 / device.seconds);
    direct = direct && device.direct;
    K3_ASSIGN(const std::uint64_t resident, make_cold(work));
    stayed = std::max(stayed, resident);
    K3_ASSIGN(const double seconds, read_units(work, depth, threads));
    rates.push_back(static_cast<double>(work.bytes) / 1e9 / seconds);
  }
  const double rate = percentile(rates, 50);
  const double device = percentile(device_rates, 50);
  const std::string size = options.service.packed_trunk ? "packed" : fmt::format("{}", unit_mb);
  fmt::print("{:>8} {:>6} {:>6} {:>14} {:>8.3f} {:>12.3f} {:>9.1f}\n", size, depth, work.units,
             work.bytes, rate, device, 100 * rate / device);
  return Json{{"unit_mb", options.service.packed_trunk ? Json() : Json(unit_mb)},
              {"depth", depth},
              {"units", work.units},
              {"bytes", work.bytes},
              {"gb_per_second", rate},
              {"device_gb_per_second", device},
              {"percent_of_device", 100 * rate / device},
              {"device_direct", direct},
              {"resident_bytes_before", stayed}};
}

}  // namespace

Status bench(const BenchOptions& options) {
  std::vector<double> sizes = options.units_mb;
  if (sizes.empty()) sizes.push_back(options.service.unit_mb);
  if (options.service.packed_trunk && !options.units_mb.empty()) {
    return fail(ErrorCode::kUsage, "a packed trunk has the unit size it was packed with");
  }
  fmt::print("cold: files dropped from the page cache (POSIX_FADV_DONTNEED); {} reader threads\n",
             options.service.io_threads);
  fmt::print("{:>8} {:>6} {:>6} {:>14} {:>8} {:>12} {:>9}\n", "unit MB", "depth", "units", "bytes",
             "GB/s", "device GB/s", "% device");
  Json rows = Json::array();
  for (const double unit_mb : sizes) {
    K3_ASSIGN(const Workload work, workload(options, unit_mb));
    for (const std::size_t depth : options.depths) {
      K3_ASSIGN(Json row, measure(options, work, unit_mb, depth));
      rows.push_back(std::move(row));
    }
  }
  const bool warm =
      std::ranges::any_of(rows, [](const Json& row) { return row["resident_bytes_before"] != 0; });
  const bool buffered =
      std::ranges::any_of(rows, [](const Json& row) { return !row["device_direct"].get<bool>(); });
  if (warm) fmt::print("not cold: the kernel kept pages of the files (resident_bytes_before)\n");
  if (buffered) fmt::print("the device was read buffered: the file system has no O_DIRECT\n");
  if (!options.json) return {};
  const Json report = {{"model", options.service.model.string()},
                       {"io_threads", options.service.io_threads},
                       {"repeat", options.repeat},
                       {"rows", rows}};
  return write_report(*options.json, report.dump(2) + "\n");
}

}  // namespace k3::trunk
