#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/capabilities.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device_waits.h"
#include "kernels/cuda/nccl/communicator.h"
#include "kernels/cuda/nccl/links.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/pinned_pool.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/sm80/pages.h"
#include "kernels/cuda/tuning/linear_plan.h"
#include "kernels/cuda/tuning/workspace_plan.h"

namespace annulus {
namespace cuda {
namespace {

constexpr int kOldestMajor = 8;

class CudaBackend final : public Backend {
 public:
  CudaBackend(DeviceInfo device, BackendCapabilities capabilities, bool with_library,
              std::shared_ptr<DeviceWaits> waits)
      : device_(std::move(device)),
        capabilities_(std::move(capabilities)),
        with_library_(with_library),
        waits_(std::move(waits)) {}

  const BackendCapabilities& capabilities() const override { return capabilities_; }

  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) override {
    if (bytes == 0) return DeviceBuffer();
    if (bytes > device_.memory_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "cannot allocate ", bytes, " bytes: ", device_.name, " has ", device_.memory_bytes));
    }
    ANNULUS_ASSIGN_OR_RETURN(std::byte* const data, waits_->AllocateDevice(device_.ordinal, bytes));
    const auto free = [waits = waits_, ordinal = device_.ordinal](std::byte* memory) {
      waits->FreeDevice(ordinal, memory);
    };
    return DeviceBuffer(data, bytes, free, device_.ordinal);
  }

  absl::StatusOr<size_t> FreeMemory() override { return waits_->FreeMemory(device_.ordinal); }

  WorkspaceBytes PlanWorkspace(const WorkShape& most) const override {
    return cuda::PlanWorkspace(most, device_, with_library_);
  }

  absl::StatusOr<DeviceBuffer> AllocateHost(size_t bytes) override {
    if (bytes == 0) return DeviceBuffer();
    return pinned_->Allocate(bytes);
  }

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int threads) override {
    if (threads < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("a stream needs at least 1 thread, not ", threads));
    }
    return CudaStream::Create(device_, waits_, with_library_);
  }

  absl::Status Copy(Stream& stream, void* destination, const void* source, size_t bytes) override {
    if (bytes == 0) return absl::OkStatus();
    ANNULUS_ASSIGN_OR_RETURN(CudaStream* const own, BeginWork(stream));
    return own->Copy(destination, source, bytes);
  }

  // Takes `others` as devices 1, 2, ..; `remark` is added to the description.
  void AddDevices(std::vector<std::unique_ptr<CudaBackend>> others, absl::string_view remark) {
    others_ = std::move(others);
    capabilities_.devices = 1 + static_cast<int>(others_.size());
    absl::StrAppend(&capabilities_.description, remark);
  }

  Backend& OnDevice(int device) override {
    if (device == 0) return *this;
    return *others_[static_cast<size_t>(device) - 1];
  }

  absl::StatusOr<std::unique_ptr<Event>> CreateEvent(bool timed) override {
    return CudaEvent::Create(device_.ordinal, timed);
  }

  absl::StatusOr<double> SecondsBetween(const Event& from, const Event& to) override {
    return cuda::SecondsBetween(HandleOf(from), HandleOf(to));
  }

  absl::Status WaitFor(const Event& event) override { return waits_->ForEvent(HandleOf(event)); }

  absl::StatusOr<std::unique_ptr<DeviceLink>> OpenLink(Backend& from, LinkKind kind) override {
    return OpenDeviceLink(static_cast<CudaBackend&>(from).device_, device_, kind, waits_);
  }

  absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> OpenGroup(
      int ranks, std::chrono::milliseconds timeout) override {
    if (ranks > capabilities_.devices) {
      return absl::FailedPreconditionError(absl::StrCat(
          "NCCL needs a GPU for each of ", ranks, " ranks, and ", capabilities_.devices,
          " are usable; lower --ranks, or use --ring-transport auto, peer or staged"));
    }
    std::vector<int> ordinals = {device_.ordinal};
    for (int rank = 1; rank < ranks; ++rank) ordinals.push_back(others_[rank - 1]->device_.ordinal);
    return OpenNcclGroup(ordinals, timeout, waits_);
  }

 private:
  const DeviceInfo device_;
  BackendCapabilities capabilities_;
  const bool with_library_;
  const std::shared_ptr<DeviceWaits> waits_;  // of all devices: one that is lost ends the others
  const std::shared_ptr<PinnedPool> pinned_ = std::make_shared<PinnedPool>(waits_, device_.ordinal);
  std::vector<std::unique_ptr<CudaBackend>> others_;
};

absl::StatusOr<std::unique_ptr<CudaBackend>> OpenDevice(const DeviceInfo& device,
                                                        std::shared_ptr<DeviceWaits> waits) {
  if (device.major < kOldestMajor) {
    return absl::FailedPreconditionError(
        absl::StrCat("GPU ", device.ordinal, ", ", device.name, ", has compute capability ",
                     device.major, ".", device.minor, "; the kernels need at least ", kOldestMajor,
                     ".0: use --device cpu or another GPU"));
  }
  BackendCapabilities capabilities = CapabilitiesOf(device);
  ANNULUS_RETURN_IF_ERROR(
      FindImage(device.ordinal,
                absl::StrCat("GPU ", device.ordinal, ", ", capabilities.description), AnyKernel()));
  const absl::Status library = OpenProducts().status();
  if (!library.ok()) {
    absl::StrAppend(&capabilities.description, ", products by own kernels: ", library.message());
  } else if (Fp8ProductsOf(device) == Fp8Products::kNone) {
    absl::StrAppend(&capabilities.description,
                    ", products in fp8 by own kernels: cuBLASLt needs compute capability 8.9");
  }
  capabilities.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return std::make_unique<CudaBackend>(device, std::move(capabilities), library.ok(),
                                       std::move(waits));
}

// Ranks share the work of a step evenly, and one choice of kernels: their devices are alike.
bool Alike(const DeviceInfo& a, const DeviceInfo& b) {
  return a.name == b.name && a.major == b.major && a.minor == b.minor;
}

// The GPU that CreateCudaBackends opens first; null if none is suitable.
const DeviceInfo* FirstOf(const std::vector<DeviceInfo>& devices) {
  const auto first = std::find_if(devices.begin(), devices.end(), [](const DeviceInfo& device) {
    return device.major >= kOldestMajor;
  });
  return first == devices.end() ? nullptr : &*first;
}

}  // namespace
}  // namespace cuda

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int ordinal,
                                                           const CudaBackendOptions& options) {
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<cuda::DeviceInfo> devices, cuda::FindDevices());
  for (const cuda::DeviceInfo& device : devices) {
    if (device.ordinal != ordinal) continue;
    return cuda::OpenDevice(device, std::make_shared<cuda::DeviceWaits>(options.longest_wait));
  }
  return absl::FailedPreconditionError(absl::StrCat("there is no GPU ", ordinal, ": CUDA shows ",
                                                    devices.size(), ", numbered from 0"));
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackends(int most,
                                                            const CudaBackendOptions& options) {
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<cuda::DeviceInfo> devices, cuda::FindDevices());
  const cuda::DeviceInfo* const first = cuda::FirstOf(devices);
  // If no GPU is suitable, the error is that of the first.
  if (first == nullptr) return CreateCudaBackend(0, options);
  const auto waits = std::make_shared<cuda::DeviceWaits>(options.longest_wait);
  ANNULUS_ASSIGN_OR_RETURN(auto backend, cuda::OpenDevice(*first, waits));
  std::vector<std::unique_ptr<cuda::CudaBackend>> others;
  std::string others_left;
  for (const cuda::DeviceInfo& device : devices) {
    if (&device == first) continue;
    if (static_cast<int>(others.size()) + 1 >= most) break;
    if (!cuda::Alike(device, *first)) {
      absl::StrAppend(&others_left, ", without GPU ", device.ordinal, " (", device.name,
                      "), which is of a different type");
      continue;
    }
    ANNULUS_ASSIGN_OR_RETURN(others.emplace_back(), cuda::OpenDevice(device, waits));
  }
  backend->AddDevices(std::move(others), others_left);
  return backend;
}

void RegisterCudaKernels(KernelRegistry& registry) {
  KernelEntry entry;
  entry.backend = "cuda";
  entry.weights_dtypes = {DType::kF32,    DType::kBF16, DType::kF16,   DType::kF8E4M3,
                          DType::kF8E5M2, DType::kI8,   DType::kI4G32, DType::kI4G64};
  entry.activations = {Activations::kFloat, Activations::kFp8};
  entry.kv_dtypes = {DType::kF32,    DType::kBF16,   DType::kF16,
                     DType::kF8E4M3, DType::kF8E5M2, DType::kI8};
  entry.max_head_dim = cuda::kMaxAttentionDim;
  const absl::StatusOr<std::vector<cuda::DeviceInfo>> devices = cuda::FindDevices();
  const cuda::DeviceInfo* const first = devices.ok() ? cuda::FirstOf(*devices) : nullptr;
  const bool hopper = first != nullptr && first->major == 9 && first->minor == 0;
  // The row-invariant ones are slower: they serve those who name them.
  const auto add = [&](OpTable ops, int priority, bool for_hopper) {
    entry.ops = std::move(ops);
    entry.priority = priority;
    entry.available = hopper || !for_hopper;
    entry.unavailable_reason = for_hopper ? "a GPU of compute capability 9.0" : "";
    registry.Register(entry);
  };
  add(cuda::Ops(), 2, false);
  add(cuda::HopperOps(), 3, true);
  add(cuda::InvariantOps(), 0, false);
  add(cuda::InvariantHopperOps(), 1, true);
}

}  // namespace annulus
