#ifndef ANNULUS_TESTS_SUPPORT_CUDA_OPERAND_H_
#define ANNULUS_TESTS_SUPPORT_CUDA_OPERAND_H_

#include <cstdint>
#include <vector>

#include "kernels/base/dtype.h"

namespace annulus::cuda {

// The operand of a product whose bits are the lower 16.
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

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_SUPPORT_CUDA_OPERAND_H_
