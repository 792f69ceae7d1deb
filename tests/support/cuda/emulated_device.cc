#include "tests/support/cuda/emulated_device.h"

#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/error.h"
#include "tests/support/cuda/emulated_memory.h"
#include "tests/support/cuda/emulated_streams.h"

namespace annulus::cuda {
namespace {

constexpr std::chrono::microseconds kLook{50};

thread_local int current_device = 0;

// Which of two devices reach each other.
std::mutex reach_mutex;
std::set<std::pair<int, int>>& Reaches() {
  static std::set<std::pair<int, int>> pairs;
  return pairs;
}

}  // namespace

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
size_t SharedBytes(int major, int minor) {
  if (major == 8) return size_t{minor == 0 || minor == 7 ? 163u : 99u} << 10;
  return size_t{major < 12 ? 227u : 99u} << 10;
}

EmulatedDevice& EmulatedDevice::Get() {
  static auto* const device = new EmulatedDevice;  // never destroyed, as KnownBlocks
  return *device;
}

GuardedMemory* EmulatedDevice::Holder(const void* address) {
  for (GuardedMemory& memory : memories) {
    if (memory.Holds(static_cast<const std::byte*>(address))) return &memory;
  }
  return nullptr;
}

int CurrentDevice() { return current_device; }

void WaitWhileHanging(int ordinal) {
  const EmulatedDevice& device = EmulatedDevice::Get();
  const int lives = device.lives;
  if (!device.Hangs(ordinal)) return;
  while (device.Hangs(ordinal)) std::this_thread::sleep_for(kLook);
  while (device.lives != lives) std::this_thread::sleep_for(std::chrono::hours(1));
}

bool IsReachEnabled(int from, int to) {
  std::lock_guard lock(reach_mutex);
  return Reaches().contains({from, to});
}

absl::StatusOr<std::vector<DeviceInfo>> FindDevices() {
  const EmulatedDevice& device = EmulatedDevice::Get();
  ANNULUS_RETURN_IF_ERROR(StatusOf(device.find_error, "finding GPUs"));
  std::vector<DeviceInfo> devices;
  for (int ordinal = 0; ordinal < device.devices; ++ordinal) {
    DeviceInfo info;
    info.ordinal = ordinal;
    const bool odd = ordinal == device.odd_device;
    info.name = odd ? "odd" : "emulated";
    info.major = odd ? 9 : device.major.load();
    info.minor = odd ? 0 : device.minor.load();
    info.memory_bytes = EmulatedDevice::kMemoryBytes;
    info.multiprocessors = device.multiprocessors;
    info.shared_bytes = SharedBytes(info.major, info.minor);
    devices.push_back(info);
  }
  return devices;
}

absl::StatusOr<StreamHandle> OpenStream(int ordinal) {
  ANNULUS_RETURN_IF_ERROR(UseDevice(ordinal));
  return EmulatedStreams::Get().Open(ordinal);
}
void CloseStream(StreamHandle stream) { EmulatedStreams::Get().Close(stream); }

absl::Status CopyAsync(StreamHandle stream, void* destination, const void* source, size_t bytes) {
  const int own = EmulatedStreams::Get().DeviceOf(stream);
  ++EmulatedDevice::Get().copies;
  for (const void* const end : {static_cast<const void*>(destination), source}) {
    GuardedMemory* const holder = EmulatedDevice::Get().Holder(end);
    ANNULUS_CHECK(holder == nullptr ||
                  holder == &EmulatedDevice::Get().memories[static_cast<size_t>(own)])
        << "a copy of device " << own << " touches another one's memory";
  }
  // As CUDA does it: other host memory is read before the call returns, and written before too.
  if (!StaysInPlace(source)) {
    auto kept = std::make_shared<std::vector<std::byte>>(bytes);
    std::memcpy(kept->data(), source, bytes);
    EmulatedStreams::Get().Enqueue(stream, [=] {
      Move(destination, kept->data(), bytes);
      return true;
    });
  } else {
    EmulatedStreams::Get().Enqueue(stream, [=] {
      ANNULUS_CHECK(StaysInPlace(source)) << "a copy from memory that was freed meanwhile";
      Move(destination, source, bytes);
      return true;
    });
  }
  if (!StaysInPlace(destination)) {
    while (!EmulatedStreams::Get().Run(stream)) std::this_thread::sleep_for(kLook);
  }
  return StatusOf(EmulatedDevice::Get().copy_error, absl::StrCat("copying ", bytes, " bytes"));
}

absl::StatusOr<bool> IsPageable(const void* memory) {
  ++EmulatedDevice::Get().lookups;
  return !StaysInPlace(memory);
}

absl::StatusOr<bool> StreamIdle(StreamHandle stream) {
  EmulatedDevice& device = EmulatedDevice::Get();
  ++device.host_waits;
  if (!EmulatedStreams::Get().Run(stream)) return false;
  const int hit = device.wait_error_of;
  if (hit >= 0 && hit != EmulatedStreams::Get().DeviceOf(stream)) return true;
  ANNULUS_RETURN_IF_ERROR(StatusOf(device.wait_error, "waiting for the GPU"));
  return true;
}

absl::Status CopyNow(int ordinal, void* destination, const void* source, size_t bytes) {
  ANNULUS_RETURN_IF_ERROR(UseDevice(ordinal));
  for (const void* const end : {static_cast<const void*>(destination), source}) {
    const MemoryPlace place = PlaceOf(end);
    ANNULUS_CHECK(place.kind != MemoryPlace::Kind::kDevice || place.ordinal == ordinal)
        << "a copy of device " << ordinal << " touches another one's memory";
  }
  WaitWhileHanging(ordinal);
  Move(destination, source, bytes);
  return StatusOf(EmulatedDevice::Get().copy_error, absl::StrCat("copying ", bytes, " bytes"));
}

absl::Status UseDevice(int ordinal) {
  if (ordinal < 0 || ordinal >= EmulatedDevice::Get().devices) {
    return StatusOf(kInvalidDevice, absl::StrCat("using GPU ", ordinal));
  }
  current_device = ordinal;
  return absl::OkStatus();
}

absl::Status FindImage(int ordinal, absl::string_view name, const void* kernel) {
  ANNULUS_CHECK(kernel != nullptr);
  ANNULUS_RETURN_IF_ERROR(UseDevice(ordinal));
  return StatusOf(EmulatedDevice::Get().image_error, name);
}

absl::StatusOr<bool> CanReach(int from, int to) {
  ANNULUS_CHECK(from != to) << "a device and itself";
  return EmulatedDevice::Get().reach.load();
}

absl::Status EnableReach(int from, int to) {
  if (!EmulatedDevice::Get().reach) {
    return absl::InternalError(absl::StrCat("device ", from, " does not reach device ", to));
  }
  std::lock_guard lock(reach_mutex);
  Reaches().emplace(from, to);
  return absl::OkStatus();
}

absl::Status CopyBetween(StreamHandle stream, int to_ordinal, void* to, int from_ordinal,
                         const void* from, size_t bytes) {
  EmulatedDevice& device = EmulatedDevice::Get();
  {
    const int own = EmulatedStreams::Get().DeviceOf(stream);
    const int other = own == to_ordinal ? from_ordinal : to_ordinal;
    ANNULUS_CHECK(own == to_ordinal || own == from_ordinal) << "a stream of a third device";
    ANNULUS_CHECK(IsReachEnabled(own, other))
        << "device " << own << " was not let reach device " << other;
  }
  ++device.copies_between;
  for (const auto& [address, ordinal] : {std::pair<const void*, int>{to, to_ordinal},
                                         std::pair<const void*, int>{from, from_ordinal}}) {
    GuardedMemory* const holder = device.Holder(address);
    ANNULUS_CHECK(holder == nullptr || holder == &device.memories[static_cast<size_t>(ordinal)])
        << "an address that is not of device " << ordinal;
  }
  EmulatedStreams::Get().Enqueue(stream, [=] {
    std::this_thread::sleep_for(
        std::chrono::microseconds(EmulatedDevice::Get().between_microseconds));
    Move(to, from, bytes);
    return true;
  });
  return StatusOf(device.copy_error, absl::StrCat("copying ", bytes, " bytes"));
}

absl::StatusOr<EventHandle> OpenEvent(int ordinal, bool) {
  ANNULUS_RETURN_IF_ERROR(UseDevice(ordinal));
  ++EmulatedDevice::Get().events;
  return EmulatedStreams::Get().OpenEvent(ordinal);
}
void CloseEvent(EventHandle event) {
  --EmulatedDevice::Get().events;
  EmulatedStreams::CloseEvent(event);
}

absl::Status RecordEvent(StreamHandle stream, EventHandle event) {
  ANNULUS_RETURN_IF_ERROR(StatusOf(EmulatedDevice::Get().event_error, "recording an event"));
  EmulatedStreams::Get().Record(stream, event);
  return absl::OkStatus();
}

absl::Status WaitForEvent(StreamHandle stream, EventHandle event) {
  EmulatedStreams::Get().Await(stream, event);
  return absl::OkStatus();
}

absl::StatusOr<bool> EventReached(EventHandle event) {
  ++EmulatedDevice::Get().host_waits;
  return EmulatedStreams::Get().Reached(event);
}

absl::StatusOr<double> SecondsBetween(EventHandle from, EventHandle to) {
  return std::chrono::duration<double>(EmulatedStreams::TimeOf(to) - EmulatedStreams::TimeOf(from))
      .count();
}

// The copy engine's requirements; the map is the tensor itself.
absl::StatusOr<TensorMap> EncodeTensorMap(const PagesTensor& tensor) {
  const int error = EmulatedDevice::Get().tensor_error;
  ANNULUS_RETURN_IF_ERROR(StatusOf(error, "making a tensor map"));
  const auto multiple_of_16 = [](auto value) { return value % 16 == 0; };
  ANNULUS_CHECK(multiple_of_16(reinterpret_cast<uintptr_t>(tensor.base)));
  ANNULUS_CHECK(DTypeSize(tensor.dtype) == 1 || DTypeSize(tensor.dtype) == 2);
  ANNULUS_CHECK(tensor.columns > 0 && tensor.rows > 0 && tensor.pages > 0);
  ANNULUS_CHECK(tensor.pages <= int64_t{1} << 31) << tensor.pages << " pages";
  for (const int64_t stride : {tensor.row_bytes, tensor.page_stride}) {
    ANNULUS_CHECK(multiple_of_16(stride) && stride > 0 && stride < int64_t{1} << 40) << stride;
  }
  ANNULUS_CHECK(tensor.box_rows > 0 && tensor.box_rows <= 256 && tensor.box_rows % 8 == 0);
  TensorMap map{};
  static_assert(sizeof(tensor) <= sizeof(map));
  PagesTensor taken = tensor;
  __builtin_clear_padding(&taken);  // which might look like an address
  std::memcpy(&map, &taken, sizeof(taken));
  return map;
}

}  // namespace annulus::cuda
