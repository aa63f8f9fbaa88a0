#include "tools/bench/machine_limits.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace k3::bench {
namespace {

constexpr std::size_t kStreams = 4;
constexpr std::size_t kLine = 64;
constexpr std::size_t kPrefetchBytes = 1024;

using Words = std::uint64_t __attribute__((vector_size(16)));

#if defined(__x86_64__)

constexpr std::size_t kChains = 12;  // two units of latency 4, and some to spare

__attribute__((target("avx512f"))) std::uint64_t multiply_add_avx512(std::uint64_t rounds) {
  __m512 sum[kChains] = {};
  for (__m512& chain : sum) asm("" : "+v"(chain));  // or equal chains become one
  __m512 factor = _mm512_set1_ps(0.5F);
  for (std::uint64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m512& chain : sum) chain = _mm512_fmadd_ps(chain, factor, factor);
    asm volatile("" : "+v"(factor));
  }
  for (__m512& chain : sum) asm volatile("" ::"v"(chain));
  return rounds * kChains * 16;
}

__attribute__((target("avx2,fma"))) std::uint64_t multiply_add_avx2(std::uint64_t rounds) {
  __m256 sum[kChains] = {};
  for (__m256& chain : sum) asm("" : "+x"(chain));  // or equal chains become one
  __m256 factor = _mm256_set1_ps(0.5F);
  for (std::uint64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m256& chain : sum) chain = _mm256_fmadd_ps(chain, factor, factor);
    asm volatile("" : "+x"(factor));
  }
  for (__m256& chain : sum) asm volatile("" ::"x"(chain));
  return rounds * kChains * 8;
}

#endif

}  // namespace

std::uint64_t read_memory(const std::byte* data, std::size_t bytes) {
  const std::size_t stream_bytes = bytes / kStreams;
  Words sum[kStreams] = {};
  for (std::size_t i = 0; i < stream_bytes; i += kLine) {
    for (std::size_t s = 0; s < kStreams; ++s) {
      const std::byte* const line = data + s * stream_bytes + i;
      __builtin_prefetch(line + kPrefetchBytes);
      const auto* const words = reinterpret_cast<const Words*>(line);
      sum[s] ^= words[0] ^ words[1] ^ words[2] ^ words[3];
    }
  }
  const Words all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
  return all[0] ^ all[1];
}

std::uint64_t multiply_add_in_registers(std::uint64_t rounds) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return multiply_add_avx512(rounds);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return multiply_add_avx2(rounds);
  }
#endif
  return 0 * rounds;
}

}  // namespace k3::bench
