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

// A tensor [pages][rows][columns] of elements of 16 or 8 bits, and the box that one copy moves:
// box_rows rows of BoxColumns columns of one page. In shared memory a box has rows of 128 bytes,
// whose 16-byte chunks are exchanged (chunk c of row r stands where chunk c ^ (r % 8) would) so
// that a column of chunks lies in all banks. Columns beyond the tensor are copied as 0.
struct PagesTensor {
  const std::byte* base = nullptr;  // a multiple of 16
  DType dtype = DType::kBF16;       // kBF16, kF16 or one of 8 bits
  int64_t columns = 0;
  int64_t rows = 0;
  int64_t pages = 0;        // at most 2^31
  int64_t row_bytes = 0;    // from row to row, a multiple of 16
  int64_t page_stride = 0;  // from page to page in bytes, a multiple of 16 below 2^40
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
