// The tables this library is built with. select.h decides which of them a CPU may run.
#pragma once

#include "common/kernels/kernel_table.h"

namespace k3::kernels {

const KernelTable& reference_table();
const KernelTable& avx2_table();
const KernelTable& avx512_table();

}  // namespace k3::kernels
