#include "kernels/cpu/cpu_backend.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/host_limits.h"

namespace annulus {
namespace {

constexpr size_t kAlignment = 64;
// From here on a block is mapped by itself instead of taken from the heap.
constexpr size_t kMappedBytes = size_t{256} << 10;

absl::Status OutOfMemory(size_t bytes, const std::string& why) {
  return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", bytes, " bytes: ", why));
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(BackendCapabilities capabilities) : capabilities_(std::move(capabilities)) {}

  const BackendCapabilities& capabilities() const override { return capabilities_; }

  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) override {
    if (bytes == 0) return DeviceBuffer();
    if (bytes > capabilities_.memory_bytes) {
      return OutOfMemory(bytes, absl::StrCat("this machine lets the process use ",
                                             capabilities_.memory_bytes, " bytes"));
    }
    if (bytes >= kMappedBytes) {
      void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (data == MAP_FAILED) return OutOfMemory(bytes, "the system refused the mapping");
      return DeviceBuffer(static_cast<std::byte*>(data), bytes,
                          [bytes](std::byte* block) { munmap(block, bytes); });
    }
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* data = std::aligned_alloc(kAlignment, rounded);
    if (data == nullptr) return OutOfMemory(bytes, "the heap is exhausted");
    return DeviceBuffer(static_cast<std::byte*>(data), bytes,
                        [](std::byte* block) { std::free(block); });
  }

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int threads) override {
    return CpuStream::Create(threads);
  }

  absl::Status Copy(Stream&, void* destination, const void* source, size_t bytes) override {
    if (bytes > 0) std::memmove(destination, source, bytes);
    return absl::OkStatus();
  }

 private:
  const BackendCapabilities capabilities_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend() {
  HostLimits limits = ReadHostLimits();
  if (limits.memory_bytes == 0) {
    return absl::InternalError("the system does not say how much memory it has");
  }
  BackendCapabilities capabilities;
  capabilities.name = "cpu";
  capabilities.description = std::move(limits.processor);
  capabilities.memory_bytes = limits.memory_bytes;
  capabilities.threads = limits.threads;
  capabilities.host_accessible = true;
  return std::make_unique<CpuBackend>(std::move(capabilities));
}

}  // namespace annulus
