#include "kernels/cuda/error.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/device_error.h"

namespace annulus::cuda {
namespace {

absl::Status MeaningOf(int code, absl::string_view what) {
  const auto message = [&](absl::string_view meaning) {
    return absl::StrCat(what, ": ", meaning, " (CUDA error ", code, ")");
  };
  switch (code) {
    case kMemoryAllocation:
      return absl::ResourceExhaustedError(
          message("the device does not have enough free memory; request less, or stop other "
                  "programs that use the device"));
    case kInsufficientDriver:
    case kSystemDriverMismatch:
      return absl::FailedPreconditionError(
          message("the NVIDIA driver is missing or older than this binary needs; install a driver "
                  "for CUDA 13.0 (580 or newer)"));
    case kNoDevice:
    case kInvalidDevice:
      return absl::FailedPreconditionError(message(
          "this GPU is not visible to the process; check nvidia-smi and CUDA_VISIBLE_DEVICES"));
    case kDevicesUnavailable:
      return absl::FailedPreconditionError(
          message("the GPU is busy, or in exclusive mode and in use; stop the other process"));
    case kInvalidDeviceFunction:
    case kNoKernelImage:
      return absl::FailedPreconditionError(
          message("this binary has no code for the GPU's architecture; build it with "
                  "CMAKE_CUDA_ARCHITECTURES of this GPU"));
    case kSystemNotReady:
      return absl::FailedPreconditionError(
          message("the machine's GPUs are not ready; if they are connected by NVSwitch, start "
                  "nvidia-fabricmanager"));
    case kEccUncorrectable:
    case kContained:
      return absl::UnavailableError(
          message("the GPU's memory has failed; reset or replace the GPU, then start again"));
    case kNvlinkUncorrectable:
      return absl::UnavailableError(
          message("a link between GPUs has failed; reset the GPUs, then start again"));
    case kIllegalAddress:
    case kLaunchTimeout:
    case kHardwareStackError:
    case kIllegalInstruction:
    case kMisalignedAddress:
    case kInvalidAddressSpace:
    case kInvalidPc:
    case kLaunchFailure:
      return absl::UnavailableError(
          message("the device aborted a kernel, and this process can no longer use it; restart "
                  "annulusd, and report this"));
    default:
      return absl::InternalError(
          message("the device reported an error; check the driver's log (dmesg, nvidia-smi -q), "
                  "and report this"));
  }
}

}  // namespace

absl::Status StatusOf(int code, absl::string_view what) {
  if (code == kSuccess) return absl::OkStatus();
  return OfDevice(MeaningOf(code, what));
}

}  // namespace annulus::cuda
