// The tables this library is built with, by target. select.h decides which of them a CPU may run.
#pragma once

#include "common/kernels/kernel_table.h"

namespace k3::kernels {

const KernelTable& reference_table();
// x86-64
const KernelTable& avx2_table();
const KernelTable& avx512_table();
// AArch64
const KernelTable& neon_table();

}  // namespace k3::kernels
