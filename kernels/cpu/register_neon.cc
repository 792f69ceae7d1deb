#include "kernels/cpu/register_entries.h"
#include "kernels/cpu/register_simd.h"
#include "kernels/cpu/simd/kernels.h"

namespace annulus {

void RegisterNeonKernels(KernelRegistry& registry) {
  registry.Register(CpuEntry(SimdOps<cpu::NeonKernels>("cpu/neon"), 10));
}

}  // namespace annulus
