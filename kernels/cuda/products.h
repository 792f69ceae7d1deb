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
// `accumulate`. bf16 times bf16, summed in float32. Addresses are the device's.
struct Product {
  int64_t rows = 0;
  int64_t out = 0;
  int64_t in = 0;
  const void* input = nullptr;   // bf16 [rows][depth]
  const void* weight = nullptr;  // bf16 [out][depth]
  int64_t depth = 0;             // elements from row to row of both, at least `in`
  const float* bias = nullptr;   // [out] or null
  float* output = nullptr;       // [rows][stride]
  int64_t stride = 0;
  bool accumulate = false;
};

// Used by one thread at a time, with one stream's workspace.
class Products {
 public:
  // Device memory that Multiply may use, in bytes; aligned to 256.
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  virtual ~Products() = default;

  // Enqueues the product. The order of its sums depends on the number of rows. INTERNAL with the
  // library's number where it refuses; UNIMPLEMENTED where it knows no way for these sizes.
  virtual absl::Status Multiply(StreamHandle stream, const Product& product,
                                std::byte* workspace) = 0;
};

// For the calling thread's device. FAILED_PRECONDITION says which file is missing and what to do.
absl::StatusOr<std::unique_ptr<Products>> OpenProducts();

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_PRODUCTS_H_
