#ifndef ANNULUS_KERNELS_CUDA_SM90_LINEAR_WARPGROUPS_H_
#define ANNULUS_KERNELS_CUDA_SM90_LINEAR_WARPGROUPS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/sm80/linear.h"

namespace annulus::cuda {

// Products of 17 to 127 rows by wgmma of compute capability 9.0: LaunchLinearTensor of up to
// kMostTogether matrices that read the same inputs, in one launch, which also rounds the inputs. On
// trial: see trial.h.
//
// wgmma multiplies 64 rows by 8 to 256 columns. Rows of inputs as its 64 would mostly be padding,
// so weights are: a tile is kWarpgroupOutputs outputs by 32 or 64 rows of inputs (wgmma's N). With
// 128, sums would not leave registers for two blocks of a multiprocessor. Weights
// come to registers, where codes are widened; a warp streams its 16 outputs of a tile through a
// ring of its own, as in linear_few_rows.cu. 8 blocks, one for each part of the depth, are a
// cluster with a stripe of the tiles. A block keeps its part of the inputs in shared memory,
// rounded, for all tiles of its stripe. Its warpgroups take these by turns and meet only when their
// sums are to be added: each block adds up an eighth of them, part after part, through distributed
// shared memory.
//
// Bits: a row's sums depend on its inputs and on the weights alone, not on the rows beside it, the
// shape or the products of the launch: a column of wgmma's result is summed by itself, in one order
// over the depth, that of linear_weights.h. They are those of the other kernels of products if
// wgmma adds 16 products to a sum as mma does. So it is in the emulation. The PTX ISA leaves open
// how either adds, so gpu-lab counts other bits (wgmma_trial). Only if it finds none may a
// row-invariant table use this beside mma for fewer rows.
inline constexpr int kMostTogether = 3;
inline constexpr int64_t kWarpgroupOutputs = 64;
inline constexpr int kWarpgroups = 2;  // of a block
inline constexpr int kMostTileRows = 64;

struct WarpgroupShape {
  int rows = 0;      // of a tile: 32 or kMostTileRows; 0: no such launch
  int clusters = 0;  // for each tile of rows, at most one for each tile of outputs
  int held = 0;      // tiles whose sums a block keeps at once, a multiple of kWarpgroups

  bool operator==(const WarpgroupShape&) const = default;
};
struct WarpgroupArguments {
  // Of the same inputs and rows, with weights of one dtype (not f32 and f16) and depth. Outputs
  // do not overlap. Those from `count` on are all zero.
  LinearArguments products[kMostTogether];
  int count;  // at least 1
  WarpgroupShape shape;
};
// Returns 0 or CUDA's error number.
int LaunchLinearWarpgroups(StreamHandle stream, const WarpgroupArguments& arguments);
// Bytes of shared memory of a block whose tiles have so many rows, which keeps the sums of `held`.
size_t WarpgroupBytes(int rows, int64_t in_features, int held);
// Tiles of so many outputs.
constexpr int64_t WarpgroupTiles(int64_t out_features) {
  return (out_features + kWarpgroupOutputs - 1) / kWarpgroupOutputs;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM90_LINEAR_WARPGROUPS_H_
