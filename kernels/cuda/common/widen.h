#ifndef ANNULUS_KERNELS_CUDA_COMMON_WIDEN_H_
#define ANNULUS_KERNELS_CUDA_COMMON_WIDEN_H_

#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cuda/common/matrix.h"

namespace annulus::cuda {

// Which two of a word's four codes become a pair. The value is the SelectBytes selector that puts
// each code into the upper half of 16 bits.
enum class CodePair : uint32_t {
  k01 = 0x1404,
  k23 = 0x3424,
  k02 = 0x2404,
  k13 = 0x3414,
};

// Widens two int8 codes to bf16, exactly. The bf16 of 128 + u has u in its last 7 bits; subtracting
// 128 or, for a negative code, 256 gives the value. The bf16 of those two differ in just the bit
// that is the code's sign.
// `spread` has each code in the lower half of 16 bits, and anything in the upper half.
ANNULUS_DEVICE uint32_t WidenSpread(uint32_t spread) {
  return AddPairs(MaskedOr(spread, 0x007f007fu, 0x43004300u),
                  MaskedOr(spread, 0x00800080u, 0xc300c300u));
}
ANNULUS_DEVICE uint32_t WidenInt8(uint32_t codes, CodePair pair) {
  return WidenSpread(SelectBytes(codes, static_cast<uint32_t>(pair) >> 4 | 0x4000u));
}

// Widens two fp8 codes to bf16, exactly: moves the bits to their place and corrects the exponent's
// bias by multiplying by a power of 2, which also works for subnormal numbers. Codes beyond the
// largest finite number give NaN (pages and weights hold no infinity).
ANNULUS_DEVICE uint32_t WidenFloat8(DType dtype, uint32_t codes, CodePair pair) {
  const uint32_t spread = SelectBytes(codes, static_cast<uint32_t>(pair));
  const bool e4m3 = dtype == DType::kF8E4M3;
  const uint32_t magnitude = spread & 0x7f007f00u;
  const uint32_t moved = (spread & 0x80008000u) | magnitude >> (e4m3 ? 4 : 3);
  const uint32_t power = e4m3 ? 0x7b807b80u : 0x77807780u;  // 2^120, 2^112
  const uint32_t beyond = magnitude + (e4m3 ? 0x01000100u : 0x04000400u);
  return MultiplyPairs(moved, power) | HalvesOfSign(beyond);
}

// Widens two codes of an 8-bit storage type to bf16; the first goes to the low half.
ANNULUS_DEVICE uint32_t WidenCodes(DType dtype, uint32_t codes, CodePair pair) {
  return dtype == DType::kI8 ? WidenInt8(codes, pair) : WidenFloat8(dtype, codes, pair);
}

// Widens two finite fp8 codes like WidenFloat8; others become finite numbers.
ANNULUS_DEVICE uint32_t WidenFinite8(DType dtype, uint32_t codes, CodePair pair) {
  const uint32_t spread = SelectBytes(codes, static_cast<uint32_t>(pair));
  const bool e4m3 = dtype == DType::kF8E4M3;
  const uint32_t magnitude = (spread & 0x7f007f00u) >> (e4m3 ? 4 : 3);
  const uint32_t power = e4m3 ? 0x7b807b80u : 0x77807780u;  // 2^120, 2^112
  return MultiplyPairs(MaskedOr(spread, 0x80008000u, magnitude), power);
}

// Sets the highest bit of each byte whose fp8 code is beyond the largest finite number, clears it
// in the others, and sets other bits anyhow.
ANNULUS_DEVICE uint32_t BeyondFinite8(DType dtype, uint32_t codes) {
  return (codes & 0x7f7f7f7fu) + (dtype == DType::kF8E4M3 ? 0x01010101u : 0x04040404u);
}

// Two int8 codes times their key's scale, rounded to bf16. The float32 of 2^23 + u has u in its
// last bits.
ANNULUS_DEVICE uint32_t WidenScaled(uint32_t codes, CodePair pair, float scale) {
  const uint32_t biased = SelectBytes(codes, static_cast<uint32_t>(pair)) ^ 0x80008000u;
  const float low = FloatOf(0x4b000000u | (biased >> 8 & 0xffu)) - 8388736.0f;
  const float high = FloatOf(0x4b000000u | biased >> 24) - 8388736.0f;
  return Pack(BFloat16{}, low * scale, high * scale);
}

// Widens the two e4m3 codes in the low 16 bits of `codes` to f16, exactly; NaN stays NaN.
template <bool kHigh>
ANNULUS_DEVICE uint32_t HalvesOfE4M3(uint32_t codes) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 890
  uint32_t halves;
  if constexpr (kHigh) {
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high; }"
        : "=r"(halves)
        : "r"(codes));
  } else {
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low; }"
        : "=r"(halves)
        : "r"(codes));
  }
  return halves;
#else
  if (kHigh) codes >>= 16;
  const uint32_t spread = SelectBytes(codes, static_cast<uint32_t>(CodePair::k01));
  const uint32_t magnitude = spread & 0x7f007f00u;
  const uint32_t moved = (spread & 0x80008000u) | magnitude >> 1;
  return MultiplyHalves(moved, 0x5c005c00u) | HalvesOfSign(magnitude + 0x01000100u);  // 2^8
#endif
}

// Widens codes 2 * pair and 2 * pair + 1 of a word's four to f16, exactly; the first goes to the
// low half. The f16 of 1024 + u has u in its last byte.
template <DType kDType>
ANNULUS_DEVICE uint32_t HalvesOfCodes(uint32_t codes, int pair) {
  if constexpr (kDType == DType::kI8) {
    const uint32_t biased = codes ^ 0x80808080u;
    return AddHalves(CombineBytes(biased, 0x64646464u, pair == 0 ? 0x4140 : 0x4342), 0xe480e480u);
  } else if constexpr (kDType == DType::kF8E4M3) {
    return pair == 0 ? HalvesOfE4M3<false>(codes) : HalvesOfE4M3<true>(codes);
  } else {
    return SelectBytes(codes, static_cast<uint32_t>(pair == 0 ? CodePair::k01 : CodePair::k23));
  }
}

// Widens code number `byte` of two words, exactly: fp8 to f16, int8 to bf16. The first word's goes
// to the low half.
template <DType kDType>
ANNULUS_DEVICE uint32_t PairOfCodes(uint32_t first, uint32_t second, int byte) {
  if constexpr (kDType == DType::kI8) {
    return WidenSpread(CombineBytes(first, second,
                                    byte == 0   ? 0x0400
                                    : byte == 1 ? 0x0501
                                    : byte == 2 ? 0x0602
                                                : 0x0703));
  } else {
    const uint32_t both = CombineBytes(first, second, byte < 2 ? 0x5140 : 0x7362);
    return HalvesOfCodes<kDType>(both, byte % 2);
  }
}

// Where element `d` of a head is stored in a row of queries, so that codes of 4 neighbouring
// elements match a lane's depth {2t, 2t+1, 2t+8, 2t+9}.
ANNULUS_DEVICE int PermutedDepth(int d) {
  const int t = d % 16 / 4;
  const int e = d % 4;
  return d / 16 * 16 + 2 * t + (e & 1) + (e & 2) * 4;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_WIDEN_H_
