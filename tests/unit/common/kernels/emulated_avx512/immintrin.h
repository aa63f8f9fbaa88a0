// Stands in for <immintrin.h> when avx512.cpp is built for a test: the AVX-512 intrinsics that file
// uses, lane by lane in plain C++. The 128-bit ones are real: every x86-64 CPU has SSE2.
#pragma once

#include <emmintrin.h>

#include <cstdint>
#include <cstring>

using __mmask16 = std::uint16_t;

struct __m512 {
  float lane[16];
};

struct __m512i {
  std::uint32_t lane[16];
};

struct __m256i {
  std::uint16_t lane[16];
};

inline __m512 _mm512_loadu_ps(const void* p) {
  __m512 result;
  std::memcpy(&result, p, sizeof result);
  return result;
}

// Touches no byte of a masked lane, as the instruction does.
inline __m512 _mm512_maskz_loadu_ps(__mmask16 mask, const void* p) {
  __m512 result = {};
  for (int l = 0; l < 16; ++l) {
    if ((mask >> l & 1) != 0) {
      std::memcpy(&result.lane[l], static_cast<const char*>(p) + 4 * l, 4);
    }
  }
  return result;
}

inline void _mm512_storeu_ps(void* p, __m512 a) { std::memcpy(p, &a, sizeof a); }

inline __m256i _mm256_loadu_si256(const __m256i* p) {
  __m256i result;
  std::memcpy(&result, static_cast<const void*>(p), sizeof result);
  return result;
}

inline __m512 _mm512_set1_ps(float a) {
  __m512 result;
  for (float& lane : result.lane) lane = a;
  return result;
}

inline __m512 _mm512_mul_ps(__m512 a, __m512 b) {
  for (int l = 0; l < 16; ++l) a.lane[l] *= b.lane[l];
  return a;
}

inline __m512 _mm512_sub_ps(__m512 a, __m512 b) {
  for (int l = 0; l < 16; ++l) a.lane[l] -= b.lane[l];
  return a;
}

inline __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c) {
  for (int l = 0; l < 16; ++l) c.lane[l] = __builtin_fmaf(a.lane[l], b.lane[l], c.lane[l]);
  return c;
}

inline __m512 _mm512_mask3_fmadd_ps(__m512 a, __m512 b, __m512 c, __mmask16 mask) {
  for (int l = 0; l < 16; ++l) {
    if ((mask >> l & 1) != 0) c.lane[l] = __builtin_fmaf(a.lane[l], b.lane[l], c.lane[l]);
  }
  return c;
}

inline __m512i _mm512_cvtepu16_epi32(__m256i a) {
  __m512i result;
  for (int l = 0; l < 16; ++l) result.lane[l] = a.lane[l];
  return result;
}

inline __m512i _mm512_cvtepu8_epi32(__m128i a) {
  std::uint8_t bytes[16];
  std::memcpy(bytes, &a, sizeof bytes);
  __m512i result;
  for (int l = 0; l < 16; ++l) result.lane[l] = bytes[l];
  return result;
}

inline __m512i _mm512_slli_epi32(__m512i a, unsigned count) {
  for (std::uint32_t& lane : a.lane) lane <<= count;
  return a;
}

inline __m512 _mm512_castsi512_ps(__m512i a) {
  __m512 result;
  std::memcpy(&result, &a, sizeof result);
  return result;
}

inline __m512 _mm512_permutexvar_ps(__m512i index, __m512 a) {
  __m512 result;
  for (int l = 0; l < 16; ++l) result.lane[l] = a.lane[index.lane[l] & 15];
  return result;
}

inline __m512i _mm512_loadu_si512(const void* p) {
  __m512i result;
  std::memcpy(&result, p, sizeof result);
  return result;
}

inline __m512i _mm512_set1_epi32(int a) {
  __m512i result;
  for (std::uint32_t& lane : result.lane) lane = static_cast<std::uint32_t>(a);
  return result;
}

inline __m512i _mm512_srli_epi32(__m512i a, unsigned count) {
  for (std::uint32_t& lane : a.lane) lane >>= count;
  return a;
}

inline __m512i _mm512_ror_epi32(__m512i a, unsigned count) {
  for (std::uint32_t& lane : a.lane) lane = (lane >> count) | (lane << (32 - count) % 32);
  return a;
}

inline __m512i _mm512_permutexvar_epi32(__m512i index, __m512i a) {
  __m512i result;
  for (int l = 0; l < 16; ++l) result.lane[l] = a.lane[index.lane[l] & 15];
  return result;
}

// Bit 4 a + 2 b + c of `table` for each bit position.
inline __m512i _mm512_ternarylogic_epi32(__m512i a, __m512i b, __m512i c, int table) {
  __m512i result = {};
  for (int l = 0; l < 16; ++l) {
    for (int bit = 0; bit < 32; ++bit) {
      const std::uint32_t index = (a.lane[l] >> bit & 1) << 2 | (b.lane[l] >> bit & 1) << 1 |
                                  (c.lane[l] >> bit & 1);
      result.lane[l] |= static_cast<std::uint32_t>(table >> index & 1) << bit;
    }
  }
  return result;
}
