// The products and recurrences that k3-bench measures, at the shapes of the released model.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/kernels/matrix.h"

namespace k3::bench {

// One thing to measure.
struct KernelCase {
  std::string table;  // "avx512", ...; empty for a limit of the machine
  std::string name;
  double bytes = 0;          // of weights and state read in one run
  double multiply_adds = 0;  // in one run
  // Does it once, over other memory than the run before.
  std::function<void()> run;
};

// Names of the two cases that are the machine's limits, and come first.
inline constexpr const char* kReadCase = "memory read";
inline constexpr const char* kPeakCase = "multiply-add in registers";

// Cases for each of `tables` with `threads` threads. Weights of a product fill `pool_bytes`, more
// than the caches hold, and are used in turn. The cases own what they need.
std::vector<KernelCase> kernel_cases(const std::vector<const kernels::KernelTable*>& tables,
                                     int threads, std::size_t pool_bytes);

}  // namespace k3::bench
