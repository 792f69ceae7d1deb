#ifndef ANNULUS_KERNELS_CUDA_ERROR_H_
#define ANNULUS_KERNELS_CUDA_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus::cuda {

// The numbers of cudaError_t that are told apart; they are fixed by CUDA's binary interface.
enum ErrorCode : int {
  kSuccess = 0,
  kMemoryAllocation = 2,
  kInsufficientDriver = 35,
  kDevicesUnavailable = 46,
  kInvalidDeviceFunction = 98,  // what some calls say where there is no image
  kNoDevice = 100,
  kInvalidDevice = 101,
  kNoKernelImage = 209,
  kEccUncorrectable = 214,
  kNvlinkUncorrectable = 220,
  kContained = 226,  // an error of the memory that ended this process's work alone
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

// What `code` means for `what` ("copying 12 bytes", ..), with what to do about it: OK;
// RESOURCE_EXHAUSTED for memory; FAILED_PRECONDITION for the machine (driver, devices,
// architecture); UNAVAILABLE where the device is lost, and the process with it; else INTERNAL. All
// but OK are marked as the device's: see kernels/base/device_error.h.
absl::Status StatusOf(int code, absl::string_view what);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_ERROR_H_
