#include "tests/kernels/cuda/which_gpu.h"

namespace annulus::testing {

bool IsRealGpu() { return false; }

}  // namespace annulus::testing
