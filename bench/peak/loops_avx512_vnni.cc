#include <immintrin.h>

#include "bench/peak/loops.h"

namespace annulus::peak {
namespace {

constexpr int kChains = 24;

float Run(int64_t iterations) {
  volatile int opaque = 0x01020304;
  const __m512i a = _mm512_set1_epi32(opaque);
  const __m512i b = _mm512_set1_epi32(~opaque);
  __m512i sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = _mm512_set1_epi32(opaque + c);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 32
    for (int c = 0; c < kChains; ++c) sums[c] = _mm512_dpbusd_epi32(sums[c], a, b);
  }
  __m512i total = _mm512_setzero_si512();
  for (int c = 0; c < kChains; ++c) total = _mm512_add_epi32(total, sums[c]);
  return static_cast<float>(((__v16si)total)[0]);
}

}  // namespace

OperationLoop Avx512VnniLoop() { return {&Run, 128.0 * kChains, "vpdpbusd zmm"}; }

}  // namespace annulus::peak
