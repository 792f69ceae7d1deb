#ifndef ANNULUS_TESTS_KERNELS_CUDA_FEW_BLOCKS_H_
#define ANNULUS_TESTS_KERNELS_CUDA_FEW_BLOCKS_H_

#include <chrono>
#include <memory>

#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device_waits.h"
#include "kernels/cuda/runtime.h"

namespace annulus::cuda {

// A stream that takes its GPU for one of so many multiprocessors. With few, as the emulated one
// has, there are more units than blocks on every GPU.
inline std::unique_ptr<CudaStream> StreamOfBlocks(int multiprocessors) {
  DeviceInfo device = FindDevices().value().front();
  device.multiprocessors = multiprocessors;
  const auto waits = std::make_shared<DeviceWaits>(std::chrono::seconds(60));
  return CudaStream::Create(device, waits, /*with_library=*/false).value();
}

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_KERNELS_CUDA_FEW_BLOCKS_H_
