#ifndef ANNULUS_KERNELS_CUDA_COMMON_LAUNCH_H_
#define ANNULUS_KERNELS_CUDA_COMMON_LAUNCH_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/common/device.h"
#include "kernels/cuda/common/grid.h"

#if !defined(__CUDACC__)
#include "absl/functional/function_ref.h"
#endif

namespace annulus::cuda {

#if !defined(__CUDACC__)

// Emulation: runs `kernel` for every thread of the grid. Returns 0.
int RunGrid(const Grid& grid, absl::FunctionRef<void()> kernel);

// Alignment of the arguments of a launch.
inline constexpr size_t kArgumentAlignment = 128;

// Emulation: what LaunchKernel takes for a kernel, a function that runs one thread of it.
using HostKernel = void (*)(const void* arguments);
template <auto kKernel, class Arguments>
void RunThread(const void* arguments) {
  static_assert(alignof(Arguments) <= kArgumentAlignment);
  kKernel(*static_cast<const Arguments*>(arguments));
}

#endif

// The address by which the runtime or the emulation identifies a kernel.
template <auto kKernel, class Arguments>
const void* AddressOf() {
#if defined(__CUDACC__)
  return reinterpret_cast<const void*>(kKernel);
#else
  return reinterpret_cast<const void*>(&RunThread<kKernel, Arguments>);
#endif
}

// Enqueues `kKernel(arguments)` or holds it back: see LaunchKernel.
template <auto kKernel, class Arguments>
int Launch(StreamHandle stream, const Grid& grid, const Arguments& arguments) {
  static_assert(std::is_trivially_copyable_v<Arguments>);
  // Clear the padding between fields, so that it does not make equal arguments differ.
  Arguments taken = arguments;
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&taken);
#endif
#endif
  return LaunchKernel(stream, AddressOf<kKernel, Arguments>(), grid, &taken, sizeof(taken));
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_LAUNCH_H_
