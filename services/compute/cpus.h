// How many threads are worth starting, and where they run.
#pragma once

#include <filesystem>

namespace k3::compute {

// Physical cores this process may run on: those its affinity mask has a CPU of (CPUs whose siblings
// are unknown count as cores), but no more than the control group's quota (cpu.max of cgroup v2)
// allows, rounded up. At least 1. Reads below `root`: sys/devices/system/cpu, sys/fs/cgroup.
int usable_cores(const std::filesystem::path& root = "/");

// Binds each of the caller's team of `threads` OpenMP threads, the caller included, to a physical
// core of its own when they are as many as the affinity mask has; fewer are left free, since other
// cores may be idle when theirs are not. True when bound. Threads started before keep their mask.
bool bind_threads(int threads, const std::filesystem::path& root = "/");

}  // namespace k3::compute
