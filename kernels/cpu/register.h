#ifndef ANNULUS_KERNELS_CPU_REGISTER_H_
#define ANNULUS_KERNELS_CPU_REGISTER_H_

#include "kernels/registry.h"

namespace annulus {

// Registers the kernels of the backend "cpu" that this binary has: always "cpu/reference"; on
// 64-bit ARM also "cpu/neon"; on x86-64 also "cpu/avx2", "cpu/avx512", "cpu/avx512-bf16" and
// "cpu/amx", each of which says what is missing if the processor lacks it. All support weights of
// every DType, KV of every DType but the grouped ones, and any head_dim up to 1024. If the
// processor has AMX, this asks the system for its tile registers.
void RegisterCpuKernels(KernelRegistry& registry);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_REGISTER_H_
