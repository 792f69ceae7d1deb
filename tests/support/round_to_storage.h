#ifndef ANNULUS_TESTS_SUPPORT_ROUND_TO_STORAGE_H_
#define ANNULUS_TESTS_SUPPORT_ROUND_TO_STORAGE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/base/dtype.h"

namespace annulus::testing {

// A head's key or value as pages of `dtype` store it, in place.
inline void RoundToStorage(DType dtype, float* row, int64_t dim) {
  std::vector<std::byte> narrow(dim * sizeof(float));
  if (dtype == DType::kI8) {
    int8_t* const q = reinterpret_cast<int8_t*>(narrow.data());
    DequantizeInt8(q, QuantizeInt8(row, q, dim), row, dim);
    return;
  }
  ConvertFromFloat(dtype, row, narrow.data(), dim);
  ConvertToFloat(dtype, narrow.data(), row, dim);
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_ROUND_TO_STORAGE_H_
