#ifndef ANNULUS_TESTS_KERNELS_CUDA_WHICH_GPU_H_
#define ANNULUS_TESTS_KERNELS_CUDA_WHICH_GPU_H_

namespace annulus::testing {

// Whether this program's GPU is a real one. Each that runs the differential tests has its answer:
// gpu_main.cc, emulated_gpu.cc and, where there is no GPU at all, ../cpu/cpu_tables.cc.
bool IsRealGpu();

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_KERNELS_CUDA_WHICH_GPU_H_
