#include <immintrin.h>

#include "bench/peak/loops.h"

namespace annulus::peak {
namespace {

constexpr int kChains = 12;

float Run(int64_t iterations) {
  volatile int opaque = 0x01020304;
  const __m256i a = _mm256_set1_epi32(opaque);
  const __m256i b = _mm256_set1_epi32(~opaque);
  __m256i sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = _mm256_set1_epi32(opaque + c);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 32
    for (int c = 0; c < kChains; ++c) sums[c] = _mm256_dpbusd_avx_epi32(sums[c], a, b);
  }
  __m256i total = _mm256_setzero_si256();
  for (int c = 0; c < kChains; ++c) total = _mm256_add_epi32(total, sums[c]);
  return static_cast<float>(((__v8si)total)[0]);
}

}  // namespace

OperationLoop AvxVnniLoop() { return {&Run, 64.0 * kChains, "vpdpbusd ymm"}; }

}  // namespace annulus::peak
