// runtime.h over the CUDA runtime, which is linked statically and itself opens the driver.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/runtime.h"

namespace annulus::cuda {
namespace {

static_assert(int{kMemoryAllocation} == cudaErrorMemoryAllocation);
static_assert(int{kInsufficientDriver} == cudaErrorInsufficientDriver);
static_assert(int{kDevicesUnavailable} == cudaErrorDevicesUnavailable);
static_assert(int{kInvalidDeviceFunction} == cudaErrorInvalidDeviceFunction);
static_assert(int{kNoDevice} == cudaErrorNoDevice);
static_assert(int{kInvalidDevice} == cudaErrorInvalidDevice);
static_assert(int{kNoKernelImage} == cudaErrorNoKernelImageForDevice);
static_assert(int{kEccUncorrectable} == cudaErrorECCUncorrectable);
static_assert(int{kNvlinkUncorrectable} == cudaErrorNvlinkUncorrectable);
static_assert(int{kContained} == cudaErrorContained);
static_assert(int{kIllegalAddress} == cudaErrorIllegalAddress);
static_assert(int{kLaunchTimeout} == cudaErrorLaunchTimeout);
static_assert(int{kHardwareStackError} == cudaErrorHardwareStackError);
static_assert(int{kIllegalInstruction} == cudaErrorIllegalInstruction);
static_assert(int{kMisalignedAddress} == cudaErrorMisalignedAddress);
static_assert(int{kInvalidAddressSpace} == cudaErrorInvalidAddressSpace);
static_assert(int{kInvalidPc} == cudaErrorInvalidPc);
static_assert(int{kLaunchFailure} == cudaErrorLaunchFailure);
static_assert(int{kSystemNotReady} == cudaErrorSystemNotReady);
static_assert(int{kSystemDriverMismatch} == cudaErrorSystemDriverMismatch);

cudaStream_t StreamOf(StreamHandle stream) { return static_cast<cudaStream_t>(NativeOf(stream)); }

// The runtime says "insufficient" of a driver that is not there; this says which file is missing.
absl::Status CheckDriver() {
  constexpr char kDriver[] = "libcuda.so.1";
  void* const driver = dlopen(kDriver, RTLD_LAZY);
  if (driver == nullptr) {
    const char* const why = dlerror();
    return absl::FailedPreconditionError(
        absl::StrCat("there is no NVIDIA driver: ", why == nullptr ? kDriver : why,
                     "; install a driver for CUDA 13.0 (580 or newer), or use --device cpu"));
  }
  dlclose(driver);
  return absl::OkStatus();
}

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) &&
              alignof(TensorMap) == alignof(CUtensorMap));
using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

// By the runtime, which opened the driver: this binary is not linked with it.
EncodeTiled FindEncodeTiled() {
  constexpr unsigned kSince = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             kSince, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<EncodeTiled>(function);
}

// Codes are moved as they are.
CUtensorMapDataType ElementType(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::kF16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

// What a query of a stream or an event says.
absl::StatusOr<bool> IsDone(cudaError_t answer, absl::string_view what) {
  if (answer == cudaSuccess) return true;
  if (answer == cudaErrorNotReady) {
    cudaGetLastError();  // no launch must report it
    return false;
  }
  return StatusOf(answer, what);
}

}  // namespace

absl::StatusOr<std::vector<DeviceInfo>> FindDevices() {
  ANNULUS_RETURN_IF_ERROR(CheckDriver());
  int count = 0;
  ANNULUS_RETURN_IF_ERROR(StatusOf(cudaGetDeviceCount(&count), "finding GPUs"));
  std::vector<DeviceInfo> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp properties;
    ANNULUS_RETURN_IF_ERROR(StatusOf(cudaGetDeviceProperties(&properties, ordinal),
                                     absl::StrCat("asking GPU ", ordinal, " for its properties")));
    devices.push_back({ordinal, properties.name, properties.major, properties.minor,
                       properties.totalGlobalMem, properties.multiProcessorCount,
                       properties.sharedMemPerBlockOptin});
  }
  return devices;
}

absl::Status UseDevice(int ordinal) {
  return StatusOf(cudaSetDevice(ordinal), absl::StrCat("using GPU ", ordinal));
}

absl::Status FindImage(int ordinal, absl::string_view name, const void* kernel) {
  ANNULUS_RETURN_IF_ERROR(UseDevice(ordinal));
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) cudaGetLastError();  // no launch must report it
  return StatusOf(error, name);
}

absl::StatusOr<TensorMap> EncodeTensorMap(const PagesTensor& tensor) {
  static const EncodeTiled encode = FindEncodeTiled();
  if (encode == nullptr) {
    return absl::FailedPreconditionError(
        "the NVIDIA driver has no cuTensorMapEncodeTiled: install a driver for CUDA 13.0 (580 or "
        "newer)");
  }
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(tensor.columns),
                              static_cast<cuuint64_t>(tensor.rows),
                              static_cast<cuuint64_t>(tensor.pages)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(tensor.row_bytes),
                                static_cast<cuuint64_t>(tensor.page_stride)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(BoxColumns(tensor.dtype)),
                            static_cast<cuuint32_t>(tensor.box_rows), 1};
  const cuuint32_t steps[] = {1, 1, 1};
  CUtensorMap made;
  const CUresult result =
      encode(&made, ElementType(tensor.dtype), 3, const_cast<std::byte*>(tensor.base), sizes,
             strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cuTensorMapEncodeTiled refuses, with error ", static_cast<int>(result), ", a tensor of ",
        tensor.pages, " pages of ", tensor.rows, " by ", tensor.columns, ", ", tensor.page_stride,
        " and ", tensor.row_bytes, " bytes apart"));
  }
  TensorMap map;
  std::memcpy(&map, &made, sizeof(map));
  return map;
}

absl::StatusOr<std::byte*> AllocateDevice(int ordinal, size_t bytes) {
  ANNULUS_RETURN_IF_ERROR(UseDevice(ordinal));
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  // A refusal must not be reported by the next launch.
  if (error != cudaSuccess) cudaGetLastError();
  ANNULUS_RETURN_IF_ERROR(StatusOf(error, absl::StrCat("allocating ", bytes, " bytes")));
  return static_cast<std::byte*>(memory);
}

void FreeDevice(int ordinal, std::byte* memory) {
  if (memory == nullptr || cudaSetDevice(ordinal) != cudaSuccess) return;
  cudaFree(memory);
}

absl::StatusOr<size_t> FreeMemory(int ordinal) {
  ANNULUS_RETURN_IF_ERROR(UseDevice(ordinal));
  size_t free = 0;
  size_t total = 0;
  ANNULUS_RETURN_IF_ERROR(StatusOf(cudaMemGetInfo(&free, &total),
                                   absl::StrCat("asking GPU ", ordinal, " for its free memory")));
  return free;
}

absl::StatusOr<std::byte*> AllocatePinned(int ordinal, size_t bytes) {
  ANNULUS_RETURN_IF_ERROR(UseDevice(ordinal));
  void* memory = nullptr;
  const cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
  if (error != cudaSuccess) cudaGetLastError();
  ANNULUS_RETURN_IF_ERROR(
      StatusOf(error, absl::StrCat("pinning ", bytes, " bytes of host memory")));
  return static_cast<std::byte*>(memory);
}

void FreePinned(int ordinal, std::byte* memory) {
  if (memory == nullptr || cudaSetDevice(ordinal) != cudaSuccess) return;
  cudaFreeHost(memory);
}

absl::StatusOr<StreamHandle> OpenStream(int ordinal) {
  ANNULUS_RETURN_IF_ERROR(UseDevice(ordinal));
  cudaStream_t stream = nullptr;
  ANNULUS_RETURN_IF_ERROR(
      StatusOf(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "opening a stream"));
  return new OpenedStream{stream};
}

void CloseStream(StreamHandle stream) {
  if (stream == nullptr) return;
  cudaStreamDestroy(StreamOf(stream));
  delete stream;
}

absl::Status CopyAsync(StreamHandle stream, void* destination, const void* source, size_t bytes) {
  return StatusOf(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, StreamOf(stream)),
                  absl::StrCat("copying ", bytes, " bytes"));
}

absl::StatusOr<bool> IsPageable(const void* memory) {
  cudaPointerAttributes place{};
  ANNULUS_RETURN_IF_ERROR(
      StatusOf(cudaPointerGetAttributes(&place, memory), "looking up an address"));
  return place.type == cudaMemoryTypeUnregistered;
}

absl::StatusOr<bool> StreamIdle(StreamHandle stream) {
  return IsDone(cudaStreamQuery(StreamOf(stream)), "waiting for the GPU");
}

// A copy from pageable memory may be on its way still when cudaMemcpy returns (CUDA Runtime API,
// "API synchronization behavior"), in the device's own stream, for which no stream of OpenStream
// waits.
absl::Status CopyNow(int ordinal, void* destination, const void* source, size_t bytes) {
  const std::string what = absl::StrCat("copying ", bytes, " bytes");
  ANNULUS_RETURN_IF_ERROR(UseDevice(ordinal));
  ANNULUS_RETURN_IF_ERROR(
      StatusOf(cudaMemcpy(destination, source, bytes, cudaMemcpyDefault), what));
  return StatusOf(cudaStreamSynchronize(cudaStreamLegacy), what);
}

absl::StatusOr<bool> CanReach(int from, int to) {
  int can = 0;
  ANNULUS_RETURN_IF_ERROR(StatusOf(cudaDeviceCanAccessPeer(&can, from, to),
                                   absl::StrCat("asking whether GPU ", from, " reaches GPU ", to)));
  return can != 0;
}

absl::Status EnableReach(int from, int to) {
  ANNULUS_RETURN_IF_ERROR(UseDevice(from));
  const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
  // Neither this nor a refusal must be reported by the next launch.
  if (error != cudaSuccess) cudaGetLastError();
  if (error == cudaErrorPeerAccessAlreadyEnabled) return absl::OkStatus();
  return StatusOf(error, absl::StrCat("letting GPU ", from, " reach memory of GPU ", to));
}

absl::Status CopyBetween(StreamHandle stream, int to_ordinal, void* to, int from_ordinal,
                         const void* from, size_t bytes) {
  return StatusOf(
      cudaMemcpyPeerAsync(to, to_ordinal, from, from_ordinal, bytes, StreamOf(stream)),
      absl::StrCat("copying ", bytes, " bytes from GPU ", from_ordinal, " to GPU ", to_ordinal));
}

absl::StatusOr<EventHandle> OpenEvent(int ordinal, bool timed) {
  ANNULUS_RETURN_IF_ERROR(UseDevice(ordinal));
  cudaEvent_t event = nullptr;
  ANNULUS_RETURN_IF_ERROR(
      StatusOf(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
               "opening an event"));
  return static_cast<EventHandle>(event);
}

void CloseEvent(EventHandle event) {
  if (event != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

absl::Status RecordEvent(StreamHandle stream, EventHandle event) {
  return StatusOf(cudaEventRecord(static_cast<cudaEvent_t>(event), StreamOf(stream)),
                  "recording an event");
}

absl::Status WaitForEvent(StreamHandle stream, EventHandle event) {
  return StatusOf(cudaStreamWaitEvent(StreamOf(stream), static_cast<cudaEvent_t>(event), 0),
                  "letting a stream wait for an event");
}

absl::StatusOr<bool> EventReached(EventHandle event) {
  return IsDone(cudaEventQuery(static_cast<cudaEvent_t>(event)), "waiting for an event");
}

absl::StatusOr<double> SecondsBetween(EventHandle from, EventHandle to) {
  float milliseconds = 0;
  ANNULUS_RETURN_IF_ERROR(
      StatusOf(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(from),
                                    static_cast<cudaEvent_t>(to)),
               "asking for the time between events"));
  return 1e-3 * milliseconds;
}

}  // namespace annulus::cuda
