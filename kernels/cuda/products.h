#ifndef ANNULUS_KERNELS_CUDA_PRODUCTS_H_
#define ANNULUS_KERNELS_CUDA_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/common/stream_handle.h"

// Products of large matrices by a library. A seam like runtime.h, with two implementations of which
// a binary links one: products_cublaslt.cc, and the emulated one of tests/support/cuda/.

namespace annulus::cuda {

// output[r, o] = sum over i of input[r, i] * weight[o, i], plus bias[o], plus output[r, o] where
// `accumulate`. Both factors are bf16, or both e4m3; sums are float32. Addresses are the device's.
//
// What the library asks of e4m3 (cuBLAS documentation, cublasLtMatmul): compute capability 8.9;
// rows of both factors one after the other, as they are here (its "TN" format); `in`, `depth`, and
// the bytes of `out` and `stride` multiples of 16, addresses too; no bias in float32. On 9.0 alone
// it takes scales for the rows of both. It adds the products of some of the depth with fewer bits
// than float32 has (about 14 on 9.0: DeepSeek-V3, arXiv 2412.19437, section 3.3.2) and these sums
// in float32.
struct Product {
  int64_t rows = 0;
  int64_t out = 0;
  int64_t in = 0;
  bool fp8 = false;              // e4m3
  const void* input = nullptr;   // [rows][depth]
  const void* weight = nullptr;  // [out][depth]
  int64_t depth = 0;             // elements from row to row of both, at least `in`
  // e4m3: sums are multiplied by input_scales[r] * weight_scales[o]. Both or none.
  const float* input_scales = nullptr;   // [rows]
  const float* weight_scales = nullptr;  // [out]
  const float* bias = nullptr;           // [out] or null
  float* output = nullptr;               // [rows][stride]
  int64_t stride = 0;
  bool accumulate = false;
};

// Used by one thread at a time, with one stream's workspace.
class Products {
 public:
  // Device memory that Multiply may use, in bytes; aligned to 256.
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  virtual ~Products() = default;

  // Whether the library has a way for this product; what its addresses hold does not matter. Where
  // it has not, own kernels multiply. The answer is kept for every product of that kind
  // (product_ways.h). INTERNAL with the library's number where it says neither.
  virtual absl::StatusOr<bool> Serves(const Product& product) = 0;

  // Enqueues a product that it serves. The order of its sums depends on the number of rows. False:
  // it does not support the way that it named itself; nothing was enqueued, and it serves that kind
  // no more. INTERNAL with the library's number where it refuses for another reason.
  virtual absl::StatusOr<bool> Multiply(StreamHandle stream, const Product& product,
                                        std::byte* workspace) = 0;
};

// For the calling thread's device. FAILED_PRECONDITION says which file is missing and what to do.
absl::StatusOr<std::unique_ptr<Products>> OpenProducts();

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_PRODUCTS_H_
