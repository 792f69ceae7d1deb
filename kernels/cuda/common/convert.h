#ifndef ANNULUS_KERNELS_CUDA_COMMON_CONVERT_H_
#define ANNULUS_KERNELS_CUDA_COMMON_CONVERT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cuda/common/device.h"

// The storage formats of kernels/base/dtype.h on the device. Gives the same bits as the functions
// there, using only integer arithmetic and float32. `dtype` is the same for all threads of a
// launch, so branches on it do not diverge.

namespace annulus::cuda {

ANNULUS_DEVICE float WidenBFloat16(uint32_t bits) { return FloatOf(bits << 16); }

ANNULUS_DEVICE float WidenFloat16(uint32_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t exponent = bits >> 10 & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return FloatOf(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return FloatOf(sign | (exponent + 112) << 23 | mantissa << 13);
  return FloatOf(sign | BitsOf(static_cast<float>(mantissa) * 0x1p-24f));
}

ANNULUS_DEVICE float WidenFloat8E4M3(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7fu;
  if (magnitude == 0x7fu) return WidenFloat16(bits << 8);  // NaN
  return WidenFloat16((bits & 0x80u) << 8 | magnitude << 7) * 256;
}

// Element `i` of an array of `dtype`, which must have whole bytes. For kI8, the code.
ANNULUS_DEVICE float LoadElement(DType dtype, const std::byte* values, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return reinterpret_cast<const float*>(values)[i];
    case DType::kBF16:
      return WidenBFloat16(reinterpret_cast<const uint16_t*>(values)[i]);
    case DType::kF16:
      return WidenFloat16(reinterpret_cast<const uint16_t*>(values)[i]);
    case DType::kF8E4M3:
      return WidenFloat8E4M3(reinterpret_cast<const uint8_t*>(values)[i]);
    case DType::kF8E5M2:
      return WidenFloat16(static_cast<uint32_t>(reinterpret_cast<const uint8_t*>(values)[i]) << 8);
    default:
      return static_cast<float>(reinterpret_cast<const int8_t*>(values)[i]);
  }
}

ANNULUS_DEVICE uint32_t NarrowBFloat16(float value) {
  const uint32_t bits = BitsOf(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

ANNULUS_DEVICE uint32_t NarrowFloat16(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  // 65520 is the first value that rounds beyond the largest finite half.
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
  // Below 2^-14: adding 0.5 makes float32's own rounding act at the subnormal's last bit.
  if (magnitude < 0x38800000u) return sign | (BitsOf(FloatOf(magnitude) + 0.5f) - 0x3f000000u);
  return sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
}

// value| in an 8-bit format; the same as NarrowMagnitude in kernels/base/dtype.cc.
ANNULUS_DEVICE uint32_t NarrowMagnitude8(uint32_t magnitude, int mantissa_bits, int bias,
                                         uint32_t largest) {
  const int dropped = 23 - mantissa_bits;
  if (magnitude < static_cast<uint32_t>(128 - bias) << 23) {
    const uint32_t anchor = static_cast<uint32_t>(128 - bias + dropped) << 23;
    return BitsOf(FloatOf(magnitude) + FloatOf(anchor)) - anchor;
  }
  const uint32_t half = (1u << (dropped - 1)) - 1 + (magnitude >> dropped & 1u);
  const uint32_t rounded =
      (magnitude - (static_cast<uint32_t>(127 - bias) << 23) + half) >> dropped;
  return Smaller(rounded, largest);
}

ANNULUS_DEVICE uint32_t NarrowFloat8(DType dtype, float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const bool nan = magnitude > 0x7f800000u;
  const uint32_t sign = bits >> 24 & 0x80u;
  if (dtype == DType::kF8E4M3) {
    return sign | (nan ? 0x7fu : NarrowMagnitude8(magnitude, 3, 7, 0x7e));
  }
  return sign | (nan ? 0x7eu : NarrowMagnitude8(magnitude, 2, 15, 0x7b));
}

// Stores `value` as element `i` of an array of `dtype`, which must have whole bytes and not be kI8.
ANNULUS_DEVICE void StoreElement(DType dtype, std::byte* values, int64_t i, float value) {
  switch (dtype) {
    case DType::kF32:
      reinterpret_cast<float*>(values)[i] = value;
      return;
    case DType::kBF16:
      reinterpret_cast<uint16_t*>(values)[i] = static_cast<uint16_t>(NarrowBFloat16(value));
      return;
    case DType::kF16:
      reinterpret_cast<uint16_t*>(values)[i] = static_cast<uint16_t>(NarrowFloat16(value));
      return;
    default:
      reinterpret_cast<uint8_t*>(values)[i] = static_cast<uint8_t>(NarrowFloat8(dtype, value));
  }
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_CONVERT_H_
