#ifndef ANNULUS_KERNELS_CPU_REGISTER_H_
#define ANNULUS_KERNELS_CPU_REGISTER_H_

#include "kernels/registry.h"

namespace annulus {

// Adds what this binary has for the backend "cpu": "cpu/reference" always; on x86-64 also
// "cpu/avx2" and "cpu/avx512", which say what is missing where the processor lacks them. All serve
// weights and KV in f32, bf16 and f16 and any head_dim up to 1024.
void RegisterCpuKernels(KernelRegistry& registry);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_REGISTER_H_
