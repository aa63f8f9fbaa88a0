// Memory facts: what this host and its control group allow, and what processes really use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace k3 {

// Unknown values are empty, never zero.
struct MemoryLimits {
  std::optional<std::uint64_t> host_available_bytes;  // MemAvailable of /proc/meminfo
  std::optional<std::uint64_t>
      cgroup_free_bytes;  // smallest limit - usage up the cgroup v1/v2 tree

  // The smaller of the known ones; empty when neither is known.
  std::optional<std::uint64_t> usable_bytes() const;
};

// Reads from `root` (normally "/"): root/proc/meminfo, root/proc/self/cgroup, root/sys/fs/cgroup.
MemoryLimits read_memory_limits(const std::filesystem::path& root = "/");

// Proportional set size of a process in bytes (/proc/PID/smaps_rollup): shared pages are divided
// among their users, so the sum over a pipeline counts each arena once. Empty when it has gone.
std::optional<std::uint64_t> proportional_set_bytes(std::uint32_t pid);

// One line of a memory plan.
struct PlannedMemory {
  std::string what;
  std::uint64_t bytes = 0;
};

// Sum of all lines.
std::uint64_t planned_bytes(const std::vector<PlannedMemory>& plan);

// kFailed with every line, the sum and the limit side by side when the plan exceeds the usable
// bytes; ok when the limit is unknown.
Status check_plan(const std::vector<PlannedMemory>& plan, const MemoryLimits& limits);

}  // namespace k3
