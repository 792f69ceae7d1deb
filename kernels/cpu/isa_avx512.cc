// The kernels for AVX512F, BW, DQ and VL. Compiled with those instructions: see simd_kernels.h.
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/isa_vec_avx512.h"

namespace annulus::cpu {

const SimdKernels& Avx512Kernels() { return kKernels<VecAvx512>; }

}  // namespace annulus::cpu
