#ifndef ANNULUS_KERNELS_CUDA_COMMON_TENSOR_MAP_H_
#define ANNULUS_KERNELS_CUDA_COMMON_TENSOR_MAP_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"

namespace annulus::cuda {

// Describes a tensor in device memory to the copy engine of compute capability 9.0. Opaque: a
// CUtensorMap, whose type headers do not need. Made by EncodeTensorMap of runtime.h.
struct alignas(128) TensorMap {
  std::byte bytes[128];
};

// A tensor [pages][rows][columns] of 16-bit or 8-bit elements, and the box that one copy moves:
// box_rows rows of BoxColumns columns of one page. In shared memory a box has rows of 128 bytes,
// whose 16-byte chunks are exchanged: chunk c of row r is stored at chunk c ^ (r % 8), so that a
// column of chunks covers all banks. Columns beyond the tensor are copied as 0.
struct PagesTensor {
  const std::byte* base = nullptr;  // a multiple of 16
  DType dtype = DType::kBF16;       // kBF16, kF16 or an 8-bit type
  int64_t columns = 0;
  int64_t rows = 0;
  int64_t pages = 0;        // at most 2^31
  int64_t row_bytes = 0;    // between rows, a multiple of 16
  int64_t page_stride = 0;  // between pages, in bytes: a multiple of 16 below 2^40
  int box_rows = 0;         // at most 256; a multiple of 8
};
inline constexpr int kPanelRowBytes = 128;
inline constexpr int kPanelColumns = kPanelRowBytes / 2;  // of 16 bits
inline constexpr int kCodeColumns = kPanelRowBytes;       // of 8 bits
constexpr int BoxColumns(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 ? kPanelColumns : kCodeColumns;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_TENSOR_MAP_H_
