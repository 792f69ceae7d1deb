#ifndef ANNULUS_KERNELS_CPU_CHECKS_H_
#define ANNULUS_KERNELS_CPU_CHECKS_H_

#include "kernels/ops/attention.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/linear.h"

// What every implementation of an op requires of its Params, beyond what their types say. The
// engine builds Params, so a violation is our own bug and ends the process.

namespace annulus {

// The largest head_dim (k or v) of the CPU kernels: the size of their conversion buffers.
inline constexpr int kCpuMaxHeadDim = 1024;

void CheckLinear(const LinearParams& params);
void CheckEmbed(const EmbedParams& params);
void CheckRmsNorm(const RmsNormParams& params);
void CheckSiluMul(const SiluMulParams& params);
void CheckRopeTable(const RopeTableParams& params);
void CheckRope(const RopeParams& params);
void CheckPageShape(const KvPageShape& shape);
void CheckKvAppend(const KvAppendParams& params);
void CheckKvRead(const KvReadParams& params);
void CheckAttention(const AttentionParams& params);
void CheckMergeState(const MergeStateParams& params);

// Bytes of a [rows, cols] matrix of `dtype`, or INVALID_ARGUMENT where a dimension is below 1, the
// dtype is none of kF32, kBF16, kF16, or the product does not fit: a checkpoint can cause these.
absl::StatusOr<size_t> MatrixBytes(int64_t rows, int64_t cols, DType dtype);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_CHECKS_H_
