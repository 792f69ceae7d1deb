// The kernels for AVX512F, BW, DQ and VL. Compiled with those instructions: see simd/kernels.h.
#include "kernels/cpu/isa/table.h"
#include "kernels/cpu/isa/vec_avx512.h"

namespace annulus::cpu {

const SimdKernels& Avx512Kernels() { return kKernels<VecAvx512>; }

}  // namespace annulus::cpu
