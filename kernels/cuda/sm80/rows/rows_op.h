#ifndef ANNULUS_KERNELS_CUDA_SM80_ROWS_ROWS_OP_H_
#define ANNULUS_KERNELS_CUDA_SM80_ROWS_ROWS_OP_H_

#include "kernels/base/tensor_view.h"
#include "kernels/cuda/common/stream_handle.h"
#include "kernels/cuda/sm80/elementwise.h"
#include "kernels/ops/elementwise.h"

namespace annulus::cuda {

// An op that makes rows which products read. Its arguments are device addresses, so it can be
// launched later than it was issued.
struct RowsOp {
  NormParams norm;       // that does not accumulate; without an output:
  GatedMulParams gated;  // a gated product

  constexpr bool is_norm() const { return norm.output.data != nullptr; }
  constexpr MatrixView output() const { return is_norm() ? norm.output : gated.output; }
};

// Returns 0 or CUDA's error number.
inline int LaunchRowsOp(StreamHandle stream, const RowsOp& op) {
  return op.is_norm() ? LaunchNorm(stream, op.norm) : LaunchGatedMul(stream, op.gated);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ROWS_ROWS_OP_H_
