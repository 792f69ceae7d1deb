#ifndef ANNULUS_KERNELS_CUDA_COMMON_OVERLAP_H_
#define ANNULUS_KERNELS_CUDA_COMMON_OVERLAP_H_

#include "kernels/cuda/common/device.h"
#include "kernels/cuda/common/grid.h"

// Kernels that begin before the one in front of them has ended, which compute capability 9.0 adds.
// What does not depend on that one happens meanwhile: starting blocks, and the first copies of
// weights. Source: CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization";
// PTX ISA, griddepcontrol.
//
// The law. A kernel that is launched with the Grid of Overlapping may begin as soon as each block
// of the kernel in front has called LetNextBegin or has ended. Therefore
// - every thread calls WaitForEarlier before it ends, also one that has nothing to do;
// - before, it reads only its arguments, and what is complete before any op that reads it is
//   enqueued, and then stays: weights, with their scales and biases;
// - before, it writes only shared memory of its own cluster: elsewhere earlier kernels may still
//   read what they would find overwritten;
// - after, everything that was enqueued earlier has ended, and its writes are seen. That holds for
//   the kernel in front by itself. For all others it follows from that kernel, which either began
//   after their end or waited for it in every thread.
// LetNextBegin gives away no data, only time, so any kernel may call it at any place, even before
// it waits. Kernels and copies that are not launched so begin after the end of all earlier work, as
// ever.

namespace annulus::cuda {

#if defined(__CUDACC__)

// Without effect if the kernel was not launched to overlap, and on 8.x.
ANNULUS_DEVICE void WaitForEarlier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel may begin, as far as this block is concerned. Once for each block suffices.
ANNULUS_DEVICE void LetNextBegin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

#else

// The emulation runs the first cluster of a late stream's next kernel up to here before the kernel
// in front, whatever that one calls. Ends the process if a thread ends without this call.
void WaitForEarlier();
inline void LetNextBegin() {}

#endif

// `grid` for a launch of a kernel that keeps the law: it may overlap if the stream lets it.
inline Grid Overlapping(StreamHandle stream, Grid grid) {
  grid.overlaps = stream != nullptr && stream->overlaps;
  return grid;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_OVERLAP_H_
