// Reads /proc and the control-group file systems; see memory.h.
#include "common/observe/memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>

namespace k3 {
namespace {

namespace fs = std::filesystem;

// Version 1 writes "no limit" as the largest page-aligned long; no machine has an exbibyte.
constexpr std::uint64_t kNoLimitBytes = std::uint64_t{1} << 60;

// Files of /proc and /sys report a size of 0, so they are read to their end. Empty when unreadable.
std::string read_pseudo_file(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// The number at the start of `text`, blanks skipped; empty for anything else ("max").
std::optional<std::uint64_t> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc()) return std::nullopt;
  return value;
}

// Calls `visit` with each line of `text`.
template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    visit(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// The number after `key` at the start of a line, as in "MemAvailable:  123 kB".
std::optional<std::uint64_t> field(std::string_view text, std::string_view key) {
  std::optional<std::uint64_t> value;
  for_each_line(text, [&](std::string_view line) {
    if (!value && line.starts_with(key)) value = leading_number(line.substr(key.size()));
  });
  return value;
}

std::optional<std::uint64_t> smaller(std::optional<std::uint64_t> a,
                                     std::optional<std::uint64_t> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

// The names one version of control groups uses.
struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* inactive_file;
  const char* active_file;
};
constexpr CgroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file ", "total_active_file "};
constexpr CgroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file ",
                                   "active_file "};

// Limit - usage of one group; empty without a limit. Cached file pages count as usage but give way
// to any allocation, so they are free here, as they are in MemAvailable.
std::optional<std::uint64_t> free_in_group(const fs::path& group, const CgroupFiles& files) {
  const auto limit = leading_number(read_pseudo_file(group / files.limit));
  const auto usage = leading_number(read_pseudo_file(group / files.usage));
  if (!limit || !usage || *limit >= kNoLimitBytes) return std::nullopt;
  const std::string stat = read_pseudo_file(group / "memory.stat");
  const std::uint64_t cached =
      field(stat, files.inactive_file).value_or(0) + field(stat, files.active_file).value_or(0);
  const std::uint64_t held = *usage - std::min(*usage, cached);
  return *limit - std::min(*limit, held);
}

// The smallest of the group at `path` below `mount` and all above it. Inside a container the path
// may not exist below the mount, or begin with "..": what exists of it is used, the mount included.
std::optional<std::uint64_t> free_up_the_tree(const fs::path& mount, std::string_view path,
                                              const CgroupFiles& files) {
  std::optional<std::uint64_t> smallest = free_in_group(mount, files);
  fs::path group = mount;
  for (const fs::path& part : fs::path(path).lexically_normal().relative_path()) {
    if (part == ".." || part == ".") continue;
    group /= part;
    smallest = smaller(smallest, free_in_group(group, files));
  }
  return smallest;
}

bool lists_memory(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::size_t end = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, end) == "memory") return true;
    controllers.remove_prefix(std::min(end + 1, controllers.size()));
  }
  return false;
}

// Lines of /proc/self/cgroup are "number:controllers:path"; version 2 is "0::path".
std::optional<std::uint64_t> cgroup_free(const fs::path& root) {
  const fs::path mount = root / "sys/fs/cgroup";
  std::optional<std::uint64_t> smallest;
  for_each_line(read_pseudo_file(root / "proc/self/cgroup"), [&](std::string_view line) {
    const std::size_t first = line.find(':');
    if (first == std::string_view::npos) return;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) return;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    if (controllers.empty()) {
      smallest = smaller(smallest, free_up_the_tree(mount, path, kVersion2));
    } else if (lists_memory(controllers)) {
      smallest = smaller(smallest, free_up_the_tree(mount / "memory", path, kVersion1));
    }
  });
  return smallest;
}

std::string megabytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::string megabytes(std::optional<std::uint64_t> bytes) {
  return bytes ? megabytes(*bytes) : "unknown";
}

}  // namespace

std::optional<std::uint64_t> MemoryLimits::usable_bytes() const {
  return smaller(host_available_bytes, cgroup_free_bytes);
}

MemoryLimits read_memory_limits(const std::filesystem::path& root) {
  MemoryLimits limits;
  const auto available_kib = field(read_pseudo_file(root / "proc/meminfo"), "MemAvailable:");
  if (available_kib && *available_kib > 0) limits.host_available_bytes = *available_kib * 1024;
  limits.cgroup_free_bytes = cgroup_free(root);
  return limits;
}

std::optional<std::uint64_t> proportional_set_bytes(std::uint32_t pid) {
  const std::string rollup = read_pseudo_file(fmt::format("/proc/{}/smaps_rollup", pid));
  const auto kib = field(rollup, "Pss:");
  if (!kib) return std::nullopt;
  return *kib * 1024;
}

std::uint64_t planned_bytes(const std::vector<PlannedMemory>& plan) {
  std::uint64_t sum = 0;
  for (const PlannedMemory& line : plan) {
    // Saturates: an absurd budget must not wrap into one that fits.
    sum += std::min(line.bytes, std::numeric_limits<std::uint64_t>::max() - sum);
  }
  return sum;
}

Status check_plan(const std::vector<PlannedMemory>& plan, const MemoryLimits& limits) {
  const std::optional<std::uint64_t> usable = limits.usable_bytes();
  const std::uint64_t planned = planned_bytes(plan);
  if (!usable || planned <= *usable) return {};
  std::string lines;
  for (const PlannedMemory& line : plan) {
    lines += fmt::format("{}{} {}", lines.empty() ? "" : " + ", line.what, megabytes(line.bytes));
  }
  return fail(ErrorCode::kFailed,
              "not enough memory: {} planned ({}), {} usable (host {}, control group {})",
              megabytes(planned), lines, megabytes(*usable), megabytes(limits.host_available_bytes),
              megabytes(limits.cgroup_free_bytes));
}

}  // namespace k3
