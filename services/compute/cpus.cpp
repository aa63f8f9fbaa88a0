#include "services/compute/cpus.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>

namespace k3::compute {

int usable_cpus(const std::filesystem::path& cgroup_root) {
  int cpus = 1;
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) == 0) cpus = CPU_COUNT(&allowed);
  // "QUOTA PERIOD" in microseconds; "max PERIOD" without a quota fails the number.
  std::ifstream file(cgroup_root / "cpu.max");
  double quota = 0;
  double period = 0;
  if (file >> quota >> period && quota > 0 && period > 0) {
    cpus = std::min(cpus, static_cast<int>(std::ceil(quota / period)));
  }
  return std::max(cpus, 1);
}

}  // namespace k3::compute
