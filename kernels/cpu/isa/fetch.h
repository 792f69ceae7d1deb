#ifndef ANNULUS_KERNELS_CPU_ISA_FETCH_H_
#define ANNULUS_KERNELS_CPU_ISA_FETCH_H_

#include "kernels/cpu/simd/kernels.h"

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

// Prefetches the next `count` cache lines of `ahead`, fewer at an array's end. Null `ahead`: no-op.
inline __attribute__((always_inline)) void Ask(FetchAhead* ahead, int count) {
  if (ahead == nullptr) return;
  const char* line = ahead->first[0];
  int left = ahead->lines[0];
  if (left == 0) {
    line = ahead->first[1];
    left = ahead->lines[1];
    ahead->lines[1] = 0;
  }
  const int asked = count < left ? count : left;
  for (int i = 0; i < asked; ++i) __builtin_prefetch(line + i * kLineBytes, 0, 2);
  ahead->first[0] = line + asked * kLineBytes;
  ahead->lines[0] = left - asked;
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_FETCH_H_
