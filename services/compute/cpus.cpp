#include "services/compute/cpus.h"

#include <fmt/format.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace k3::compute {

namespace {

// CPUs of one core have the same list of siblings.
std::string siblings(const std::filesystem::path& root, int cpu) {
  std::ifstream file(
      root / fmt::format("sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
  std::string list;
  return std::getline(file, list) && !list.empty() ? list : fmt::format("cpu{}", cpu);
}

// The allowed CPUs of each core; empty when the affinity mask cannot be read.
std::vector<cpu_set_t> allowed_cores(const std::filesystem::path& root) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {};
  std::map<std::string, cpu_set_t> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &cores[siblings(root, cpu)]);
  }
  std::vector<cpu_set_t> sets;
  for (const auto& [list, set] : cores) sets.push_back(set);
  return sets;
}

}  // namespace

int usable_cores(const std::filesystem::path& root) {
  int cores = static_cast<int>(allowed_cores(root).size());
  // "QUOTA PERIOD" in microseconds; "max PERIOD" without a quota fails the number.
  std::ifstream file(root / "sys/fs/cgroup/cpu.max");
  double quota = 0;
  double period = 0;
  if (file >> quota >> period && quota > 0 && period > 0) {
    cores = std::min(cores, static_cast<int>(std::ceil(quota / period)));
  }
  return std::max(cores, 1);
}

bool bind_threads(int threads, const std::filesystem::path& root) {
  const std::vector<cpu_set_t> cores = allowed_cores(root);
  if (static_cast<std::size_t>(threads) != cores.size()) return false;
  bool bound = true;
#pragma omp parallel num_threads(threads) reduction(&& : bound)
  {
    const auto core = static_cast<std::size_t>(omp_get_thread_num());
    bound = ::sched_setaffinity(0, sizeof(cpu_set_t), &cores[core]) == 0;
  }
  return bound;
}

}  // namespace k3::compute
