#ifndef ANNULUS_KERNELS_CUDA_COMMON_TENSOR_MAP_H_
#define ANNULUS_KERNELS_CUDA_COMMON_TENSOR_MAP_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"

namespace annulus::cuda {

// What the copy engine of compute capability 9.0 knows of a tensor in device memory: a CUtensorMap,
// whose type no header here needs. Made by EncodeTensorMap of runtime.h; opaque.
struct alignas(128) TensorMap {
  std::byte bytes[128];
};

// A tensor [pages][rows][columns] of 16-bit elements, and the box that one copy moves: box_rows
// rows of kPanelColumns columns of one page. In shared memory a box has rows of 128 bytes, whose
// 16-byte chunks are exchanged (chunk c of row r stands where chunk c ^ (r % 8) would) so that a
// column of chunks lies in all banks. Columns beyond the tensor are copied as 0.
struct PagesTensor {
  const std::byte* base = nullptr;  // a multiple of 16
  DType dtype = DType::kBF16;       // kBF16 or kF16
  int64_t columns = 0;
  int64_t rows = 0;
  int64_t pages = 0;        // at most 2^31
  int64_t row_bytes = 0;    // from row to row, a multiple of 16
  int64_t page_stride = 0;  // from page to page in bytes, a multiple of 16 below 2^40
  int box_rows = 0;         // at most 256; a multiple of 8
};
inline constexpr int kPanelColumns = 64;
inline constexpr int kPanelRowBytes = 128;

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_TENSOR_MAP_H_
