// What the machine itself can do: the two figures every kernel is held against.
#pragma once

#include <cstddef>
#include <cstdint>

namespace k3::bench {

// Reads `bytes` bytes (a multiple of 256) from `data`, aligned to 64, in four streams with
// prefetch: the fastest pattern found. Returns their exclusive or, so that no read can be left out.
// Any thread.
std::uint64_t read_memory(const std::byte* data, std::size_t bytes);

// Fused multiply-adds of fp32 in registers, in as many independent chains as hide their latency,
// with the widest instructions the CPU has. Returns how many multiply-adds were done; 0 on a CPU
// without any this file knows. Any thread.
std::uint64_t multiply_add_in_registers(std::uint64_t rounds);

}  // namespace k3::bench
