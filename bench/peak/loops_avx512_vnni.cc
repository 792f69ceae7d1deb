#include <immintrin.h>

#include "bench/peak/loops.h"

namespace annulus::bench::peak {
namespace {

constexpr int kChains = 24;

float Run(int64_t iterations) {
  volatile int opaque = 0x01020304;
  const __m512i a = _mm512_set1_epi32(opaque);
  const __m512i b = _mm512_set1_epi32(~opaque);
  // Not __m512i, which may alias anything: the compiler would store every sum in every step.
  __v16si sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = (__v16si)_mm512_set1_epi32(opaque + c);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 32
    for (int c = 0; c < kChains; ++c) {
      sums[c] = (__v16si)_mm512_dpbusd_epi32((__m512i)sums[c], a, b);
    }
  }
  __v16si total = {};
  for (int c = 0; c < kChains; ++c) total += sums[c];
  return static_cast<float>(total[0]);
}

}  // namespace

OperationLoop Avx512VnniLoop() { return {&Run, 128.0 * kChains, "vpdpbusd zmm"}; }

}  // namespace annulus::bench::peak
