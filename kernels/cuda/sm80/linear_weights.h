#ifndef ANNULUS_KERNELS_CUDA_SM80_LINEAR_WEIGHTS_H_
#define ANNULUS_KERNELS_CUDA_SM80_LINEAR_WEIGHTS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/convert.h"
#include "kernels/cuda/common/widen.h"
#include "kernels/cuda/sm80/linear.h"

// Shared by the product kernels: decoding weights, and the order of summation. All of them follow
// that order, so a row has the same bits in each.
//
// The depth is divided into kDepthParts parts, the same ones for any number of rows. A part is
// summed in steps of kDepthStep, and the parts' sums are added in order. Within a step, lane t of
// the 4 that share an output (or a thread that does the work of all 4) has the depth 8t .. 8t + 7:
//   tensor cores  as 4 pairs. A step is two products of depth 16, in which pair p is at depth
//                 16 * (p / 2) + 2t + 8 * (p % 2). A group's scale multiplies the step's sum, which
//                 is added with one rounding (AddScaled)
//   float32       one after the other, into a sum of its own. The 4 sums of a part are added as
//                 (0 + 1) + (2 + 3)

namespace annulus::cuda {

// Elements of a row in each part: whole chunks of 64, which no group of 4-bit codes crosses.
constexpr int64_t PartDepth(int64_t in_features) {
  constexpr int64_t kUnit = 64;
  return (in_features + kDepthParts * kUnit - 1) / (kDepthParts * kUnit) * kUnit;
}

constexpr bool IsFourBit(DType dtype) { return dtype == DType::kI4G32 || dtype == DType::kI4G64; }

// The scale of weight (o, i).
ANNULUS_DEVICE float LoadScale(const WeightView& w, int64_t o, int64_t i) {
  if (w.scales == nullptr) return 1;
  const std::byte* const scales = w.scales + o * w.scale_bytes;
  if (!IsFourBit(w.dtype)) return *reinterpret_cast<const float*>(scales);
  const int64_t group = i / (w.dtype == DType::kI4G32 ? 32 : 64);
  return WidenBFloat16(reinterpret_cast<const uint16_t*>(scales)[group]);
}

// The factor for the sum of a row's products, applied before the scale of the weights.
ANNULUS_DEVICE float InputScale(const LinearArguments& a, int64_t row) {
  return a.input_scales == nullptr ? 1 : a.input_scales[row];
}

// How a row of inputs becomes codes of Activations::kFp8, as RoundToFloat8 of
// kernels/base/activations.h does: codes of x * factor. The products' sum is multiplied by `scale`.
struct Float8Scale {
  float factor;  // 0: all codes are 0
  float scale;   // NaN if an input is not finite
};
// `largest`: the largest magnitude of the row, as bits.
ANNULUS_DEVICE Float8Scale Float8ScaleOf(uint32_t largest) {
  if (largest >= 0x7f800000u) return {0, FloatOf(0x7fc00000u)};
  const float magnitude = FloatOf(largest);
  if (magnitude < 0x1p-100f) return {0, 0};
  return {448 / magnitude, magnitude / 448};
}
ANNULUS_DEVICE uint32_t Float8Code(const Float8Scale& row, float x) {
  return row.factor == 0 ? 0 : NarrowFloat8(DType::kF8E4M3, x * row.factor);
}

// sum += product * scale, rounded once.
ANNULUS_DEVICE void AddScaled(float product, float scale, float& sum) {
  sum = fmaf(product, scale, sum);
}

ANNULUS_DEVICE void StoreOutput(const LinearArguments& a, int64_t row, int64_t column, float sum) {
  if (a.bias != nullptr) sum += a.bias[column];
  float* const output = a.output.row(row) + column;
  *output = a.accumulate ? *output + sum : sum;
}

// Which two of 8 neighbouring elements form pair p. Decoding 4-bit codes gives pairs that are 16
// bits apart in their word.
ANNULUS_DEVICE int LowOfPair(bool four_bit, int p) { return four_bit ? p : 2 * p; }
ANNULUS_DEVICE int HighOfPair(bool four_bit, int p) { return four_bit ? p + 4 : 2 * p + 1; }

// The word of pair p of lane t in a step of rounded inputs. In this order, ldmatrix gives every
// lane its own pairs.
ANNULUS_DEVICE int WordOfPair(int t, int p) { return 4 * p + t; }

// c = a b, over bf16: the first of a sum of products.
ANNULUS_DEVICE void Multiply(BFloat16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                             uint32_t b1) {
#if defined(__CUDACC__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %10, %10, %10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
#else
  for (float& x : c) x = 0;
  MultiplyAdd(BFloat16{}, c, a, b0, b1);
#endif
}

// Codes 0 and 4 of a word's eight as bf16, minus 8 each. The bf16 of 128 + u has u in its last
// bits.
ANNULUS_DEVICE uint32_t WidenNibbles(uint32_t word) {
  return AddPairs(MaskedOr(word, 0x000f000fu, 0x43004300u), 0xc308c308u);
}

// The stored forms of weights that are multiplied in bf16.
enum class CodeForm : uint8_t { kFourBits, kInt8, kFloat8, kBFloat16 };

constexpr int BitsOf(CodeForm form) {
  if (form == CodeForm::kFourBits) return 4;
  return form == CodeForm::kBFloat16 ? 16 : 8;
}

constexpr CodeForm FormOf(DType dtype) {
  if (IsFourBit(dtype)) return CodeForm::kFourBits;
  if (dtype == DType::kBF16) return CodeForm::kBFloat16;
  return dtype == DType::kI8 ? CodeForm::kInt8 : CodeForm::kFloat8;
}

// 8 neighbouring weights as stored. Their alignment, in bytes, is the number of bits of a weight.
template <CodeForm kForm>
struct alignas(BitsOf(kForm)) EightCodes {
  uint32_t words[BitsOf(kForm) / 4];
};
template <CodeForm kForm>
ANNULUS_DEVICE EightCodes<kForm> LoadEight(const std::byte* codes) {
  return *reinterpret_cast<const EightCodes<kForm>*>(codes);
}

// Two codes of fp8 to bf16, exactly: k01 or k23 of a word.
ANNULUS_DEVICE uint32_t WidenPairOfFloat8(DType dtype, uint32_t codes, CodePair pair) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;"
      : "=r"(halves)
      : "h"(static_cast<uint16_t>(pair == CodePair::k01 ? codes : codes >> 16)));
  // The f16 of e5m2 has the code as its upper half.
  if (dtype == DType::kF8E5M2) halves = SelectBytes(codes, static_cast<uint32_t>(pair));
  return Pack(BFloat16{}, WidenHalf(halves), WidenHighHalf(halves));
#else
  return WidenFloat8(dtype, codes, pair);
#endif
}

// To bf16 pairs.
template <CodeForm kForm>
ANNULUS_DEVICE void WidenEight(DType dtype, const EightCodes<kForm>& codes, uint32_t (&pairs)[4]) {
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    const CodePair pair = p % 2 == 0 ? CodePair::k01 : CodePair::k23;
    if constexpr (kForm == CodeForm::kBFloat16) {
      pairs[p] = codes.words[p];
    } else if constexpr (kForm == CodeForm::kFourBits) {
      pairs[p] = WidenNibbles(codes.words[0] >> 4 * p);
    } else if constexpr (kForm == CodeForm::kInt8) {
      pairs[p] = WidenInt8(codes.words[p / 2], pair);
    } else {
      pairs[p] = WidenPairOfFloat8(dtype, codes.words[p / 2], pair);
    }
  }
}
template <CodeForm kForm>
ANNULUS_DEVICE void WidenEight(DType dtype, const std::byte* codes, uint32_t (&pairs)[4]) {
  WidenEight<kForm>(dtype, LoadEight<kForm>(codes), pairs);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_LINEAR_WEIGHTS_H_
