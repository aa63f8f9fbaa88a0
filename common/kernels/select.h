// Chooses the kernel table: the best the CPU supports, or the one K3_ISA names.
#pragma once

#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/kernels/kernel_table.h"

namespace k3::kernels {

const KernelTable& reference_table();

// Tables this binary holds and this CPU can run, best first; the last is always "reference".
std::vector<const KernelTable*> supported_tables();

// `name` empty: the best. Otherwise that table; kUsage naming the supported ones when it is unknown
// or this CPU cannot run it.
Result<const KernelTable*> select_table(std::string_view name);

}  // namespace k3::kernels
