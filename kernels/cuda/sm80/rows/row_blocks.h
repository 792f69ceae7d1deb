#ifndef ANNULUS_KERNELS_CUDA_SM80_ROWS_ROW_BLOCKS_H_
#define ANNULUS_KERNELS_CUDA_SM80_ROWS_ROW_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/device.h"
#include "kernels/cuda/common/grid.h"

// How kernels that touch every element once divide rows among blocks: each block takes a part of a
// row, or a whole row if the op sums over it.

namespace annulus::cuda {

inline constexpr int kRowThreads = 256;  // of a block
inline constexpr int kRowWarps = kRowThreads / kWarp;
inline constexpr int kRowElements = 4;  // of a row's part that one thread takes
inline constexpr int64_t kRowChunk = kRowElements * kRowThreads;

// The part of a [rows, cols] matrix that the calling thread works on: columns begin, begin +
// kRowThreads, .. below end of one row.
struct RowPart {
  int64_t row;
  int64_t begin;
  int64_t end;
};

inline Grid GridOfRows(int64_t rows, int64_t cols) {
  return {.x = rows * ((cols + kRowChunk - 1) / kRowChunk), .threads = kRowThreads};
}

ANNULUS_DEVICE RowPart PartOfRow(int64_t cols) {
  const auto chunks = static_cast<uint32_t>((cols + kRowChunk - 1) / kRowChunk);
  const auto block = static_cast<uint32_t>(BlockX());
  const int64_t first = block % chunks * kRowChunk;
  return {block / chunks, first + ThreadIndex(), Smaller(cols, first + kRowChunk)};
}

// One block per row, with the shared memory of SumOfBlock.
inline Grid GridOfWholeRows(int64_t rows) {
  return {.x = rows, .threads = kRowThreads, .shared_bytes = kRowWarps * sizeof(float)};
}

// The sum of all threads' parts, for each of them, in an order that is always the same. Requires
// that nobody uses the shared memory.
ANNULUS_DEVICE float SumOfBlock(float part) {
  float* const sums = reinterpret_cast<float*>(SharedMemory());
  part = WarpSum(part);
  if (Lane() == 0) sums[WarpIndex()] = part;
  SyncThreads();
  float total = 0;
  for (int i = 0; i < kRowWarps; ++i) total += sums[i];
  return total;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ROWS_ROW_BLOCKS_H_
