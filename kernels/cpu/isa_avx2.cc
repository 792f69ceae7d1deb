// The kernels for AVX2, FMA and F16C. Compiled with those instructions: see simd_kernels.h.
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/isa_vec_avx2.h"

namespace annulus::cpu {

const SimdKernels& Avx2Kernels() { return kKernels<VecAvx2>; }

}  // namespace annulus::cpu
