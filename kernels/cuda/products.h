#ifndef ANNULUS_KERNELS_CUDA_PRODUCTS_H_
#define ANNULUS_KERNELS_CUDA_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/common/stream_handle.h"

// Products of large matrices by a library. Like runtime.h this is an interface of which a binary
// links one of two implementations: products_cublaslt.cc or the emulation in tests/support/cuda/.

namespace annulus::cuda {

// Types of the factors.
enum class Factors : uint8_t { kBFloat16, kFloat16, kFloat8E4M3 };

// output[r, o] = sum over i of input[r, i] * weight[o, i], plus bias[o], plus output[r, o] if
// `accumulate`. Both factors have the same type; sums are float32. All addresses are the
// device's.
//
// For e4m3 the library requires (cuBLAS documentation, cublasLtMatmul):
// - compute capability 8.9;
// - both factors stored by rows, as they are here (its "TN" format);
// - `in`, `depth`, the bytes of `out` and of `stride`, and all addresses to be multiples of 16;
// - no float32 bias.
//
// Only on 9.0 does it accept scales for the rows of both factors. It adds products over part of the
// depth with fewer bits than float32 has (about 14 on 9.0: DeepSeek-V3, arXiv 2412.19437, section
// 3.3.2), and adds those partial sums in float32.
struct Product {
  int64_t rows = 0;
  int64_t out = 0;
  int64_t in = 0;
  Factors factors = Factors::kBFloat16;
  const void* input = nullptr;   // [rows][depth]
  const void* weight = nullptr;  // [out][depth]
  int64_t depth = 0;             // elements between rows of both, at least `in`
  // e4m3 only: sums are multiplied by input_scales[r] * weight_scales[o]. Set both or neither.
  const float* input_scales = nullptr;   // [rows]
  const float* weight_scales = nullptr;  // [out]
  const float* bias = nullptr;           // [out] or null
  float* output = nullptr;               // [rows][stride]
  int64_t stride = 0;
  bool accumulate = false;
};

// Used by one thread at a time, with the workspace of one stream.
class Products {
 public:
  // Bytes of device memory that Multiply may use; aligned to 256.
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  virtual ~Products() = default;

  // Whether the library has a way for products like this; does not look at the data. If it has
  // none, our own kernels multiply. The answer is cached for all products of that kind
  // (product_ways.h). INTERNAL, with the library's error number, if the library gives no answer.
  virtual absl::StatusOr<bool> Serves(const Product& product) = 0;

  // Enqueues a product for which Serves returned true. The order of its sums depends on the number
  // of rows. Returns false if the library rejects the way that it had proposed itself; then nothing
  // was enqueued, and Serves is false for that kind from now on. INTERNAL, with the library's error
  // number, for other errors.
  virtual absl::StatusOr<bool> Multiply(StreamHandle stream, const Product& product,
                                        std::byte* workspace) = 0;
};

// Opens the library for the calling thread's device. FAILED_PRECONDITION if it cannot be loaded,
// with the missing file and what to do.
absl::StatusOr<std::unique_ptr<Products>> OpenProducts();

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_PRODUCTS_H_
