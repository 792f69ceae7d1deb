// The kernels for NEON, which every 64-bit ARM processor has.
#include "kernels/cpu/isa/table.h"
#include "kernels/cpu/isa/vec_neon.h"

namespace annulus::cpu {

const SimdKernels& NeonKernels() { return kKernels<VecNeon>; }

}  // namespace annulus::cpu
