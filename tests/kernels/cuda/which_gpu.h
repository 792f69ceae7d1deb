#ifndef ANNULUS_TESTS_KERNELS_CUDA_WHICH_GPU_H_
#define ANNULUS_TESTS_KERNELS_CUDA_WHICH_GPU_H_

namespace annulus::testing {

// Whether this program's GPU is a real one. Each of the two that run the differential tests has its
// answer: gpu_main.cc and emulated_gpu.cc.
bool IsRealGpu();

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_KERNELS_CUDA_WHICH_GPU_H_
