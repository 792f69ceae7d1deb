#include "tests/support/cuda/emulated_device.h"

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/error.h"

namespace annulus::cuda {
namespace {

constexpr size_t kAlignment = 256;

// Blocks carry their size in front, so that freeing can count.
std::byte* AllocateCounted(size_t bytes) {
  auto* const block = static_cast<std::byte*>(std::aligned_alloc(
      kAlignment, kAlignment + (bytes + kAlignment - 1) / kAlignment * kAlignment));
  ANNULUS_CHECK(block != nullptr);
  std::memcpy(block, &bytes, sizeof(bytes));
  std::memset(block + kAlignment, 0xff, bytes);
  return block + kAlignment;
}

}  // namespace

EmulatedDevice& EmulatedDevice::Get() {
  static EmulatedDevice device;
  return device;
}

absl::StatusOr<std::vector<DeviceInfo>> FindDevices() {
  const EmulatedDevice& device = EmulatedDevice::Get();
  ANNULUS_RETURN_IF_ERROR(StatusOf(device.find_error, "finding GPUs"));
  DeviceInfo info;
  info.name = "emulated";
  info.major = device.major;
  info.memory_bytes = EmulatedDevice::kMemoryBytes;
  info.multiprocessors = device.multiprocessors;
  info.shared_bytes = size_t{227} << 10;
  return std::vector<DeviceInfo>{info};
}

absl::StatusOr<std::byte*> AllocateDevice(int, size_t bytes) {
  EmulatedDevice& device = EmulatedDevice::Get();
  const int error = device.allocated + bytes > EmulatedDevice::kMemoryBytes
                        ? static_cast<int>(kMemoryAllocation)
                        : device.allocate_error.load();
  ANNULUS_RETURN_IF_ERROR(StatusOf(error, absl::StrCat("allocating ", bytes, " bytes")));
  device.allocated += bytes;
  if (!device.guarded) return AllocateCounted(bytes);
  std::byte* const memory = device.memory.Allocate(bytes);
  ANNULUS_CHECK(memory != nullptr) << "no gap of " << bytes << " bytes";
  return memory;
}

void FreeDevice(int, std::byte* memory) {
  if (memory == nullptr) return;
  EmulatedDevice& device = EmulatedDevice::Get();
  if (device.memory.Holds(memory)) {
    device.allocated -= device.memory.Free(memory);
    return;
  }
  size_t bytes = 0;
  std::memcpy(&bytes, memory - kAlignment, sizeof(bytes));
  device.allocated -= bytes;
  std::free(memory - kAlignment);
}

absl::StatusOr<std::byte*> AllocatePinned(size_t bytes) { return AllocateCounted(bytes); }

void FreePinned(std::byte* memory) {
  if (memory != nullptr) std::free(memory - kAlignment);
}

absl::StatusOr<StreamHandle> OpenStream(int) { return static_cast<StreamHandle>(nullptr); }
void CloseStream(StreamHandle) {}

absl::Status CopyAsync(StreamHandle, void* destination, const void* source, size_t bytes) {
  return CopyNow(destination, source, bytes);
}

absl::Status WaitFor(StreamHandle) {
  return StatusOf(EmulatedDevice::Get().wait_error, "waiting for the GPU");
}

absl::Status CopyNow(void* destination, const void* source, size_t bytes) {
  {
    const GuardedMemory::Access access(EmulatedDevice::Get().memory);
    std::memmove(destination, source, bytes);
  }
  return StatusOf(EmulatedDevice::Get().copy_error, absl::StrCat("copying ", bytes, " bytes"));
}

absl::Status UseDevice(int) { return absl::OkStatus(); }

}  // namespace annulus::cuda
