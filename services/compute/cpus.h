// How many threads are worth starting.
#pragma once

#include <filesystem>

namespace k3::compute {

// CPUs this process may run on: those of its affinity mask, but no more than the control group's
// quota (cpu.max of cgroup v2 under `cgroup_root`, when readable) allows, rounded up. At least 1.
int usable_cpus(const std::filesystem::path& cgroup_root = "/sys/fs/cgroup");

}  // namespace k3::compute
