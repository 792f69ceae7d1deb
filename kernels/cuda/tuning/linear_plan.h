#ifndef ANNULUS_KERNELS_CUDA_TUNING_LINEAR_PLAN_H_
#define ANNULUS_KERNELS_CUDA_TUNING_LINEAR_PLAN_H_

#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/cuda/runtime.h"

namespace annulus::cuda {

// The tiles of 8 outputs that a block of a product of few rows has (sm80/linear.h), a power of two.
// More tiles share one reading of the inputs; fewer give more blocks. The most, as long as every
// multiprocessor has a block and the block has its shared memory. `tensor`: by tensor cores, else
// in float32. Pure.
int FewRowsTiles(int64_t out_features, bool tensor, const DeviceInfo& device);

// The tiles of kTileOutputs outputs that a block of a product of many rows has, by tensor cores
// (sm80/linear.h): 1, 2 or 4. More tiles share one reading of the inputs; the most, as long as
// every multiprocessor has a block. Pure.
int ManyRowsTiles(int64_t rows, int64_t out_features, const DeviceInfo& device);

// What cuBLASLt makes of factors in e4m3 on a device: see products.h.
enum class Fp8Products : uint8_t {
  kNone,    // before compute capability 8.9
  kSums,    // sums of products of codes
  kScaled,  // sums times a scale for each row and output: 9.0
};
Fp8Products Fp8ProductsOf(const DeviceInfo& device);

// Whether it takes outputs of this shape, in place.
bool Fp8OutputFits(const MatrixView& output);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TUNING_LINEAR_PLAN_H_
