#include <immintrin.h>

#include "bench/peak/loops.h"

namespace annulus::bench::peak {
namespace {

constexpr int kChains = 12;

float Run(int64_t iterations) {
  volatile int opaque = 0x01020304;
  const __m256i a = _mm256_set1_epi32(opaque);
  const __m256i b = _mm256_set1_epi32(~opaque);
  // Not __m256i, which may alias anything: the compiler would store every sum in every step.
  __v8si sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = (__v8si)_mm256_set1_epi32(opaque + c);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 32
    for (int c = 0; c < kChains; ++c) {
      sums[c] = (__v8si)_mm256_dpbusd_avx_epi32((__m256i)sums[c], a, b);
    }
  }
  __v8si total = {};
  for (int c = 0; c < kChains; ++c) total += sums[c];
  return static_cast<float>(total[0]);
}

}  // namespace

OperationLoop AvxVnniLoop() { return {&Run, 64.0 * kChains, "vpdpbusd ymm"}; }

}  // namespace annulus::bench::peak
