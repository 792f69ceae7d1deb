// The kernels for AVX2, FMA and F16C. Compiled with those instructions: see simd/kernels.h.
#include "kernels/cpu/isa/table.h"
#include "kernels/cpu/isa/vec_avx2.h"

namespace annulus::cpu {

const SimdKernels& Avx2Kernels() { return kKernels<VecAvx2>; }

}  // namespace annulus::cpu
