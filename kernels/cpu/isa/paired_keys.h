#ifndef ANNULUS_KERNELS_CPU_ISA_PAIRED_KEYS_H_
#define ANNULUS_KERNELS_CPU_ISA_PAIRED_KEYS_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa/dot_codes.h"
#include "kernels/cpu/isa/fetch.h"
#include "kernels/cpu/simd/kernels.h"

// Widens paired pages of the 8-bit types to bf16, 64 codes at a time, by the table look-ups of
// quantised weights. Exact: the scales of int8 are applied to scores and weights instead.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

// Widens `count` codes, a multiple of 4 * row, to pairs in the order of a paired bf16 page, in
// which `row` pairs are stored together. For keys, row = 16.
template <class Codes>
inline __attribute__((always_inline)) void WidenCodes(const Codes& codes, const void* from,
                                                      int64_t count, int64_t row, void* to,
                                                      FetchAhead* ahead) {
  const char* code = static_cast<const char*>(from);
  uint32_t* pairs = static_cast<uint32_t*>(to);
  for (int64_t i = 0; i < count; i += 4 * row, pairs += 2 * row) {
    for (int64_t c = 0; c < row; c += kPanel, code += 64) {
      __m512i wide[Codes::kPairs];
      codes.Widen(code, wide);
      _mm512_storeu_si512(pairs + c, wide[0]);
      _mm512_storeu_si512(pairs + row + c, wide[1]);
      // About half of the time is spent here, so prefetch half of the lines.
      if (reinterpret_cast<intptr_t>(code) / 64 % 2 == 0) Ask(ahead, 1);
    }
  }
}

template <class T>
void WidenPairedKeys(const NarrowKeys& keys) {
  WidenCodes(ByteCodes<T>(), static_cast<const char*>(keys.k) + int64_t{keys.begin} * keys.k_dim,
             int64_t{keys.end - keys.begin} * keys.k_dim, kPanel, keys.wide_k, keys.ahead);
}

template <class T>
void WidenPairedValues(const NarrowKeys& keys) {
  WidenCodes(ByteCodes<T>(), static_cast<const char*>(keys.v) + int64_t{keys.begin} * keys.v_stride,
             int64_t{keys.end - keys.begin} * keys.v_stride, keys.v_stride, keys.wide_v,
             keys.ahead);
}

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_PAIRED_KEYS_H_
