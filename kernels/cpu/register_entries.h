#ifndef ANNULUS_KERNELS_CPU_REGISTER_ENTRIES_H_
#define ANNULUS_KERNELS_CPU_REGISTER_ENTRIES_H_

#include "kernels/registry.h"

// Parts of RegisterCpuKernels.

namespace annulus {

// An available entry of the backend "cpu" with the ranges that all CPU kernels share.
KernelEntry CpuEntry(OpTable ops, int priority);

// "cpu/avx2", "cpu/avx512", "cpu/avx512-bf16" and "cpu/amx". Defined only where CMake builds for
// x86-64.
void RegisterX86Kernels(KernelRegistry& registry);
// "cpu/neon". Defined only where CMake builds for 64-bit ARM.
void RegisterNeonKernels(KernelRegistry& registry);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_REGISTER_ENTRIES_H_
