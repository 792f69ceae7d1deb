#ifndef ANNULUS_KERNELS_CUDA_TUNING_LINEAR_PLAN_H_
#define ANNULUS_KERNELS_CUDA_TUNING_LINEAR_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/cuda/runtime.h"

namespace annulus::cuda {

// Number of tiles of 8 outputs per block, for a product of few rows (sm80/linear.h): a power of
// two. With more tiles, more outputs share one read of the inputs; with fewer, there are more
// blocks. Returns the most tiles with which every multiprocessor still has a block and the block
// fits its shared memory. `tensor`: tensor cores, else float32. Pure.
int FewRowsTiles(int64_t out_features, bool tensor, const DeviceInfo& device);
// Number of blocks for such a product: one for every 8 * tiles outputs. If `streamed`, no more than
// the device holds at once: blocks take several groups of outputs, and keep reading in between.
int64_t FewRowsBlocks(int64_t out_features, int tiles, bool streamed, const DeviceInfo& device);

// Number of tiles of kTileOutputs outputs per block, for a product of many rows by tensor cores
// (sm80/linear.h): 1, 2 or 4. With more tiles, more outputs share one read of the inputs. Returns
// the most tiles with which every multiprocessor still has a block. Pure.
int ManyRowsTiles(int64_t rows, int64_t out_features, const DeviceInfo& device);

// The parts of a product's scratch memory, in bytes, one after the other; each is a multiple of
// 256. Pure.
struct ProductScratch {
  size_t scales = 0;   // of the inputs' rows
  size_t inputs = 0;   // rounded inputs, or codes
  size_t weights = 0;  // widened, of some outputs
  size_t factors = 0;  // of those outputs
  size_t sums = 0;     // if the library does not write the output itself
  size_t library = 0;  // the library's workspace

  size_t total() const { return scales + inputs + weights + factors + sums + library; }
};
// For more than kFewRows rows by tensor cores; `codes`: with Activations::kFp8.
ProductScratch ScratchOfManyRows(int64_t rows, int64_t in, bool codes);
// For few rows of codes, as float32.
ProductScratch ScratchOfFewCodes(int64_t rows, int64_t in);
// For the library, in bf16 and in e4m3. `aside`: it writes sums to the scratch memory.
ProductScratch ScratchOfLibrary(int64_t rows, int64_t in);
ProductScratch ScratchOfFp8Library(int64_t rows, int64_t in, int64_t out, bool aside);

// From how many rows on the library multiplies quantised weights, widened to 16 bits. Widening
// costs as much as some hundred rows.
inline constexpr int64_t kWidenedRows = 256;
bool IsWidened(DType dtype);
// How many outputs are widened at a time: few, so that their weights and sums stay in the L2 cache,
// and enough for every multiprocessor.
int64_t WidenedOutputs(int64_t rows, int64_t out);
ProductScratch ScratchOfWidened(int64_t rows, int64_t in, int64_t out, bool aside);

// What cuBLASLt can do with e4m3 factors on a device: see products.h.
enum class Fp8Products : uint8_t {
  kNone,    // before compute capability 8.9
  kSums,    // sums of products of codes
  kScaled,  // sums times a scale per row and per output: 9.0
};
Fp8Products Fp8ProductsOf(const DeviceInfo& device);

// Whether cuBLASLt can write outputs of this shape in place.
bool Fp8OutputFits(const MatrixView& output);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TUNING_LINEAR_PLAN_H_
