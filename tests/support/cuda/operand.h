#ifndef ANNULUS_TESTS_SUPPORT_CUDA_OPERAND_H_
#define ANNULUS_TESTS_SUPPORT_CUDA_OPERAND_H_

#include <cstdint>
#include <vector>

#include "kernels/base/dtype.h"

namespace annulus::cuda {

// The operand of a product whose bits are the lower 16, or the lower 8 of e4m3.
template <class T>
float WidenOperand(uint32_t bits) {
  return ToFloat(T{static_cast<uint16_t>(bits)});
}
template <>
inline float WidenOperand<Float16>(uint32_t bits) {
  static const std::vector<float> table = [] {
    std::vector<float> values(1 << 16);
    for (uint32_t i = 0; i < values.size(); ++i) {
      values[i] = ToFloat(Float16{static_cast<uint16_t>(i)});
    }
    return values;
  }();
  return table[bits & 0xffffu];
}

template <>
inline float WidenOperand<Float8E4M3>(uint32_t bits) {
  static const std::vector<float> table = [] {
    std::vector<float> values(1 << 8);
    for (uint32_t i = 0; i < values.size(); ++i) {
      values[i] = ToFloat(Float8E4M3{static_cast<uint8_t>(i)});
    }
    return values;
  }();
  return table[bits & 0xffu];
}

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_SUPPORT_CUDA_OPERAND_H_
