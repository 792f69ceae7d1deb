#ifndef ANNULUS_KERNELS_CPU_REGISTER_ENTRIES_H_
#define ANNULUS_KERNELS_CPU_REGISTER_ENTRIES_H_

#include "kernels/registry.h"

// The parts of RegisterCpuKernels.

namespace annulus {

// An available entry of the backend "cpu" that supports what all CPU kernels do.
KernelEntry CpuEntry(OpTable ops, int priority);

// Registers "cpu/avx2", "cpu/avx512", "cpu/avx512-bf16" and "cpu/amx". Defined only if CMake builds
// for x86-64.
void RegisterX86Kernels(KernelRegistry& registry);
// Registers "cpu/neon". Defined only if CMake builds for 64-bit ARM.
void RegisterNeonKernels(KernelRegistry& registry);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_REGISTER_ENTRIES_H_
