#ifndef ANNULUS_KERNELS_CUDA_TUNING_LINEAR_PLAN_H_
#define ANNULUS_KERNELS_CUDA_TUNING_LINEAR_PLAN_H_

#include <cstddef>
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

// What a product leaves in the stream's scratch for its own launches: bytes of parts that follow
// each other, each a multiple of 256. Pure.
struct ProductScratch {
  size_t scales = 0;   // of the inputs' rows
  size_t inputs = 0;   // rounded, or codes
  size_t sums = 0;     // where the library does not write the output itself
  size_t library = 0;  // its own

  size_t total() const { return scales + inputs + sums + library; }
};
// More than kFewRows rows by tensor cores; `codes`: of Activations::kFp8.
ProductScratch ScratchOfManyRows(int64_t rows, int64_t in, bool codes);
// Few rows of codes, as float32.
ProductScratch ScratchOfFewCodes(int64_t rows, int64_t in);
// By the library, in bf16 and in e4m3; `aside`: it leaves sums in the scratch.
ProductScratch ScratchOfLibrary(int64_t rows, int64_t in);
ProductScratch ScratchOfFp8Library(int64_t rows, int64_t in, int64_t out, bool aside);

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
