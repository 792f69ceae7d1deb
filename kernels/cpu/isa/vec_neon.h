#ifndef ANNULUS_KERNELS_CPU_ISA_VEC_NEON_H_
#define ANNULUS_KERNELS_CPU_ISA_VEC_NEON_H_

#include <arm_neon.h>

#include "kernels/cpu/simd/kernels.h"

// The vector of isa/neon.cc: 8 floats in two registers, ARMv8.0-A. isa/vec_avx2.h describes the
// operations. It uses two registers because the product unrolls at most 8 vectors: one row alone
// then has 16 independent chains.

namespace annulus::cpu {
namespace {  // internal linkage on purpose: see simd/kernels.h

#define ANNULUS_ISA_INLINE static inline __attribute__((always_inline))

struct VecNeon {
  static constexpr int kLanes = 8;
  static constexpr int kDoubles = 2;
  struct Float {
    float32x4_t low;
    float32x4_t high;
  };
  struct Mask {
    uint32x4_t low;
    uint32x4_t high;
  };
  using Double = float64x2_t;
  using DoubleMask = uint64x2_t;

  // Uses at most 24 accumulators of the 32 registers: a panel takes four per row.
  static constexpr int kTallTileRows = kTileRows;
  static constexpr int TilePanels(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }

  ANNULUS_ISA_INLINE Float Zero() { return Set(0); }
  ANNULUS_ISA_INLINE Float Set(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }

  ANNULUS_ISA_INLINE Float Load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
  ANNULUS_ISA_INLINE Float Load(const Bf16* p) {
    const uint16x8_t half = vld1q_u16(&p->bits);
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(half), 16)),
            vreinterpretq_f32_u32(vshll_high_n_u16(half, 16))};
  }
  ANNULUS_ISA_INLINE Float Load(const F16* p) { return WidenHalf(vld1q_u16(&p->bits)); }
  ANNULUS_ISA_INLINE Float Load(const E4M3* p) {
    const uint16x8_t bits = vmovl_u8(vld1_u8(&p->bits));
    const uint16x8_t magnitude = vandq_u16(bits, vdupq_n_u16(0x7f));
    const uint16x8_t sign = vshlq_n_u16(vsubq_u16(bits, magnitude), 8);
    const uint16x8_t nan = vceqq_u16(magnitude, vdupq_n_u16(0x7f));
    const uint16x8_t half = vbslq_u16(nan, vdupq_n_u16(0x7e00), vshlq_n_u16(magnitude, 7));
    return Mul(WidenHalf(vorrq_u16(half, sign)), Set(256));
  }
  ANNULUS_ISA_INLINE Float Load(const E5M2* p) {
    return WidenHalf(vshll_n_u8(vld1_u8(&p->bits), 8));
  }
  ANNULUS_ISA_INLINE Float Load(const int8_t* p) {
    const int16x8_t words = vmovl_s8(vld1_s8(p));
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), vcvtq_f32_s32(vmovl_high_s16(words))};
  }
  ANNULUS_ISA_INLINE Float LoadPartial(const float* p, int64_t count) {
    if (count < 4) return {LoadQuarter(p, count), vdupq_n_f32(0)};
    return {vld1q_f32(p), LoadQuarter(p + 4, count - 4)};
  }
  ANNULUS_ISA_INLINE void Store(float* p, Float x) {
    vst1q_f32(p, x.low);
    vst1q_f32(p + 4, x.high);
  }
  ANNULUS_ISA_INLINE void StorePartial(float* p, Float x, int64_t count) {
    if (count < 4) return StoreQuarter(p, x.low, count);
    vst1q_f32(p, x.low);
    StoreQuarter(p + 4, x.high, count - 4);
  }
  ANNULUS_ISA_INLINE void Store(Bf16* p, Float x) {
    vst1q_u16(&p->bits,
              vshrn_high_n_u32(vshrn_n_u32(RoundToBf16(x.low), 16), RoundToBf16(x.high), 16));
  }
  ANNULUS_ISA_INLINE void Store(F16* p, Float x) {
    const float16x8_t half = vcvt_high_f16_f32(vcvt_f16_f32(x.low), x.high);
    vst1q_u16(&p->bits, vreinterpretq_u16_f16(half));
  }

  ANNULUS_ISA_INLINE Float Add(Float a, Float b) {
    return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)};
  }
  ANNULUS_ISA_INLINE Float Sub(Float a, Float b) {
    return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)};
  }
  ANNULUS_ISA_INLINE Float Mul(Float a, Float b) {
    return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)};
  }
  ANNULUS_ISA_INLINE Float Div(Float a, Float b) {
    return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)};
  }
  ANNULUS_ISA_INLINE Float MulAdd(Float a, Float b, Float c) {
    return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
  }
  ANNULUS_ISA_INLINE Float MulSub(Float a, Float b, Float c) {
    return MulAdd(a, b, {vnegq_f32(c.low), vnegq_f32(c.high)});
  }
  // Not FMAX and FMIN, which return NaN if either operand is NaN.
  ANNULUS_ISA_INLINE Float Max(Float a, Float b) { return Select(Less(b, a), a, b); }
  ANNULUS_ISA_INLINE Float Min(Float a, Float b) { return Select(Less(a, b), a, b); }
  ANNULUS_ISA_INLINE Float Round(Float x) { return {vrndnq_f32(x.low), vrndnq_f32(x.high)}; }
  ANNULUS_ISA_INLINE Float TimesPowerOfTwo(Float x, Float n) {
    return {AddToExponent(x.low, n.low), AddToExponent(x.high, n.high)};
  }
  ANNULUS_ISA_INLINE float Sum(Float x) { return vaddvq_f32(vaddq_f32(x.low, x.high)); }
  ANNULUS_ISA_INLINE float Largest(Float x) { return vmaxnmvq_f32(vmaxnmq_f32(x.low, x.high)); }

  ANNULUS_ISA_INLINE Mask Lanes(int begin, int end) {
    const int32x4_t low = {0, 1, 2, 3};
    return {LanesOf(low, begin, end), LanesOf(vaddq_s32(low, vdupq_n_s32(4)), begin, end)};
  }
  ANNULUS_ISA_INLINE Mask Less(Float a, Float b) {
    return {vcltq_f32(a.low, b.low), vcltq_f32(a.high, b.high)};
  }
  ANNULUS_ISA_INLINE Float Select(Mask mask, Float yes, Float no) {
    return {vbslq_f32(mask.low, yes.low, no.low), vbslq_f32(mask.high, yes.high, no.high)};
  }

  ANNULUS_ISA_INLINE Double DoubleSet(double x) { return vdupq_n_f64(x); }
  ANNULUS_ISA_INLINE Double DoubleLoad(const float* p) { return vcvt_f64_f32(vld1_f32(p)); }
  ANNULUS_ISA_INLINE void DoubleStore(float* p, Double x) { vst1_f32(p, vcvt_f32_f64(x)); }
  ANNULUS_ISA_INLINE Double DoubleMul(Double a, Double b) { return vmulq_f64(a, b); }
  ANNULUS_ISA_INLINE Double DoubleMulAdd(Double a, Double b, Double c) {
    return vfmaq_f64(c, a, b);
  }
  ANNULUS_ISA_INLINE Double DoubleNegMulAdd(Double a, Double b, Double c) {
    return vfmsq_f64(c, a, b);
  }
  ANNULUS_ISA_INLINE Double DoubleRound(Double x) { return vrndnq_f64(x); }
  ANNULUS_ISA_INLINE Double DoubleFloor(Double x) { return vrndmq_f64(x); }
  ANNULUS_ISA_INLINE DoubleMask DoubleEqual(Double a, Double b) { return vceqq_f64(a, b); }
  ANNULUS_ISA_INLINE DoubleMask Or(DoubleMask a, DoubleMask b) { return vorrq_u64(a, b); }
  ANNULUS_ISA_INLINE Double DoubleSelect(DoubleMask mask, Double yes, Double no) {
    return vbslq_f64(mask, yes, no);
  }

 private:
  ANNULUS_ISA_INLINE Float WidenHalf(uint16x8_t bits) {
    const float16x8_t half = vreinterpretq_f16_u16(bits);
    return {vcvt_f32_f16(vget_low_f16(half)), vcvt_high_f32_f16(half)};
  }
  // The bf16 value is the upper half of each result.
  ANNULUS_ISA_INLINE uint32x4_t RoundToBf16(float32x4_t x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    return vbslq_u32(vceqq_f32(x, x), rounded, quiet);
  }
  // The conversion multiplies by 2^23.
  ANNULUS_ISA_INLINE float32x4_t AddToExponent(float32x4_t x, float32x4_t n) {
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x), vcvtq_n_s32_f32(n, 23)));
  }
  ANNULUS_ISA_INLINE uint32x4_t LanesOf(int32x4_t lanes, int begin, int end) {
    return vandq_u32(vcgeq_s32(lanes, vdupq_n_s32(begin)), vcltq_s32(lanes, vdupq_n_s32(end)));
  }
  // Loads the first `count` < 4 elements.
  ANNULUS_ISA_INLINE float32x4_t LoadQuarter(const float* p, int64_t count) {
    float32x4_t x = vdupq_n_f32(0);
    if (count > 0) x = vld1q_lane_f32(p, x, 0);
    if (count > 1) x = vld1q_lane_f32(p + 1, x, 1);
    if (count > 2) x = vld1q_lane_f32(p + 2, x, 2);
    return x;
  }
  ANNULUS_ISA_INLINE void StoreQuarter(float* p, float32x4_t x, int64_t count) {
    if (count > 0) vst1q_lane_f32(p, x, 0);
    if (count > 1) vst1q_lane_f32(p + 1, x, 1);
    if (count > 2) vst1q_lane_f32(p + 2, x, 2);
  }
};

#undef ANNULUS_ISA_INLINE

}  // namespace
}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_ISA_VEC_NEON_H_
