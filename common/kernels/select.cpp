// Which kernel tables this CPU can run.
#include "common/kernels/select.h"

#include <string>

#include "common/kernels/tables.h"

namespace k3::kernels {

std::vector<const KernelTable*> supported_tables() {
  std::vector<const KernelTable*> tables;
#if defined(__x86_64__)
  // The builtin also asks whether the operating system saves these registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq");
  if (avx512) tables.push_back(&avx512_table());
  if (avx2) tables.push_back(&avx2_table());
#elif defined(__aarch64__)
  tables.push_back(&neon_table());  // no AArch64 CPU is without it
#endif
  tables.push_back(&reference_table());
  return tables;
}

Result<const KernelTable*> select_table(std::string_view name) {
  const std::vector<const KernelTable*> tables = supported_tables();
  if (name.empty()) return tables.front();
  std::string supported;
  for (const KernelTable* table : tables) {
    if (name == table->name) return table;
    if (!supported.empty()) supported += ", ";
    supported += table->name;
  }
  return fail(ErrorCode::kUsage,
              "instruction set '{}' is unknown or not supported by this CPU; supported here: {}",
              name, supported);
}

}  // namespace k3::kernels
