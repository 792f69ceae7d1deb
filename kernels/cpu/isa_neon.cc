// The kernels for NEON, which every 64-bit ARM processor has.
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/isa_vec_neon.h"

namespace annulus::cpu {

const SimdKernels& NeonKernels() { return kKernels<VecNeon>; }

}  // namespace annulus::cpu
