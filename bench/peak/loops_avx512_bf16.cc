#include <immintrin.h>

#include "bench/peak/loops.h"

namespace annulus::bench::peak {
namespace {

constexpr int kChains = 24;

float Run(int64_t iterations) {
  volatile float opaque = 0.5f;
  const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(opaque), _mm512_set1_ps(opaque));
  const __m512bh b = _mm512_cvtne2ps_pbh(_mm512_set1_ps(opaque), _mm512_set1_ps(-opaque));
  __m512 sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = _mm512_set1_ps(opaque + static_cast<float>(c));
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 32
    for (int c = 0; c < kChains; ++c) sums[c] = _mm512_dpbf16_ps(sums[c], a, b);
  }
  __m512 total = _mm512_setzero_ps();
  for (int c = 0; c < kChains; ++c) total = _mm512_add_ps(total, sums[c]);
  return total[0];
}

}  // namespace

OperationLoop Avx512Bf16Loop() { return {&Run, 64.0 * kChains, "vdpbf16ps zmm"}; }

}  // namespace annulus::bench::peak
