#ifndef ANNULUS_KERNELS_CPU_REGISTER_H_
#define ANNULUS_KERNELS_CPU_REGISTER_H_

#include "kernels/registry.h"

namespace annulus {

// Adds what this binary has for the backend "cpu": "cpu/reference" always; on 64-bit ARM also
// "cpu/neon"; on x86-64 also "cpu/avx2", "cpu/avx512", "cpu/avx512-bf16" and "cpu/amx", which say
// what is missing where the processor lacks them. All serve weights in every DType, KV in all but
// those with groups, and any head_dim up to 1024. Where the processor has AMX, asks the system for
// its tile registers.
void RegisterCpuKernels(KernelRegistry& registry);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_REGISTER_H_
