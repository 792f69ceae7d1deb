#ifndef ANNULUS_KERNELS_CUDA_ERROR_H_
#define ANNULUS_KERNELS_CUDA_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus::cuda {

// The values of cudaError_t that we distinguish. CUDA's binary interface fixes the numbers.
enum ErrorCode : int {
  kSuccess = 0,
  kMemoryAllocation = 2,
  kInsufficientDriver = 35,
  kDevicesUnavailable = 46,
  kInvalidDeviceFunction = 98,  // some calls return this if there is no image
  kNoDevice = 100,
  kInvalidDevice = 101,
  kNoKernelImage = 209,
  kEccUncorrectable = 214,
  kNvlinkUncorrectable = 220,
  kContained = 226,  // a memory error that ended only this process's work
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kHardwareStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidPc = 718,
  kLaunchFailure = 719,
  kSystemNotReady = 802,
  kSystemDriverMismatch = 803,
};

// Converts an error of CUDA into a Status. `what` says what was being done ("copying 12 bytes");
// the message adds what to do. RESOURCE_EXHAUSTED for memory; FAILED_PRECONDITION for the machine
// (driver, devices, architecture); UNAVAILABLE if the device is lost, and the process with it;
// otherwise INTERNAL. All errors are marked as device errors: see kernels/base/device_error.h.
absl::Status StatusOf(int code, absl::string_view what);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_ERROR_H_
