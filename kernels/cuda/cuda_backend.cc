#include "kernels/cuda/cuda_backend.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/pinned_pool.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/runtime.h"

namespace annulus {
namespace cuda {
namespace {

constexpr int kOldestMajor = 8;

class CudaBackend final : public Backend {
 public:
  CudaBackend(DeviceInfo device, BackendCapabilities capabilities, bool with_library)
      : device_(std::move(device)),
        capabilities_(std::move(capabilities)),
        with_library_(with_library) {}

  const BackendCapabilities& capabilities() const override { return capabilities_; }

  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) override {
    if (bytes == 0) return DeviceBuffer();
    if (bytes > device_.memory_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "cannot allocate ", bytes, " bytes: ", device_.name, " has ", device_.memory_bytes));
    }
    ANNULUS_ASSIGN_OR_RETURN(std::byte* const data, AllocateDevice(device_.ordinal, bytes));
    return DeviceBuffer(data, bytes, [ordinal = device_.ordinal](std::byte* memory) {
      FreeDevice(ordinal, memory);
    });
  }

  absl::StatusOr<DeviceBuffer> AllocateHost(size_t bytes) override {
    if (bytes == 0) return DeviceBuffer();
    ANNULUS_RETURN_IF_ERROR(UseDevice(device_.ordinal));
    return pinned_->Allocate(bytes);
  }

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int threads) override {
    if (threads < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("a stream needs at least 1 thread, not ", threads));
    }
    return CudaStream::Create(device_, with_library_);
  }

  absl::Status Copy(Stream& stream, void* destination, const void* source, size_t bytes) override {
    if (bytes == 0) return absl::OkStatus();
    return CopyAsync(AsCudaStream(stream).handle(), destination, source, bytes);
  }

 private:
  const DeviceInfo device_;
  const BackendCapabilities capabilities_;
  const bool with_library_;
  const std::shared_ptr<PinnedPool> pinned_ = std::make_shared<PinnedPool>();
};

}  // namespace
}  // namespace cuda

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int ordinal) {
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<cuda::DeviceInfo> devices, cuda::FindDevices());
  for (const cuda::DeviceInfo& device : devices) {
    if (device.ordinal != ordinal) continue;
    if (device.major < cuda::kOldestMajor) {
      return absl::FailedPreconditionError(
          absl::StrCat("GPU ", ordinal, ", ", device.name, ", has compute capability ",
                       device.major, ".", device.minor, "; the kernels need at least ",
                       cuda::kOldestMajor, ".0: use --device cpu or another GPU"));
    }
    BackendCapabilities capabilities;
    capabilities.name = "cuda";
    capabilities.description =
        absl::StrCat(device.name, ", compute capability ", device.major, ".", device.minor);
    ANNULUS_RETURN_IF_ERROR(cuda::UseDevice(ordinal));
    const absl::Status library = cuda::OpenProducts().status();
    if (!library.ok()) {
      absl::StrAppend(&capabilities.description, ", products by own kernels: ", library.message());
    }
    capabilities.memory_bytes = device.memory_bytes;
    capabilities.threads = 1;
    capabilities.host_accessible = false;
    return std::make_unique<cuda::CudaBackend>(device, std::move(capabilities), library.ok());
  }
  return absl::FailedPreconditionError(absl::StrCat("there is no GPU ", ordinal, ": CUDA shows ",
                                                    devices.size(), ", numbered from 0"));
}

void RegisterCudaKernels(KernelRegistry& registry) {
  KernelEntry entry;
  entry.ops = cuda::Ops();
  entry.backend = "cuda";
  entry.priority = 0;
  entry.weights_dtypes = {DType::kF32,    DType::kBF16, DType::kF16,   DType::kF8E4M3,
                          DType::kF8E5M2, DType::kI8,   DType::kI4G32, DType::kI4G64};
  entry.kv_dtypes = {DType::kF32,    DType::kBF16,   DType::kF16,
                     DType::kF8E4M3, DType::kF8E5M2, DType::kI8};
  entry.max_head_dim = cuda::kMaxAttentionDim;
  registry.Register(std::move(entry));
}

}  // namespace annulus
