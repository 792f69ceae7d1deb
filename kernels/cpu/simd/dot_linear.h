#ifndef ANNULUS_KERNELS_CPU_SIMD_DOT_LINEAR_H_
#define ANNULUS_KERNELS_CPU_SIMD_DOT_LINEAR_H_

#include <span>

#include "absl/status/status.h"
#include "kernels/cpu/host/cpu_stream.h"
#include "kernels/cpu/simd/dot_kernels.h"
#include "kernels/ops/linear.h"

namespace annulus::cpu {

// OpTable::linears with dot products of bf16 pairs. Weights that `dot` does not support (f32, f16)
// go through `isa`.
absl::Status DotLinears(const DotKernels& dot, const SimdKernels& isa, CpuStream& stream,
                        std::span<const LinearParams> parts);

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_DOT_LINEAR_H_
