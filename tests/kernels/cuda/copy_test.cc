// Copies of the backend: what CUDA is asked about their ends.
#include <chrono>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_waits.h"
#include "tests/support/cuda/emulated_device.h"

namespace annulus::cuda {
namespace {

constexpr size_t kCopied = 100;

// Neither of its devices' memory nor of pinned memory, nor in the middle of a block.
TEST(CopyTest, TheBackendsOwnMemoryIsNotLookedUp) {
  EmulatedDevice& device = EmulatedDevice::Get();
  device.devices = 2;
  const auto backend = CreateCudaBackends(2).value();
  for (const int ordinal : {0, 1}) {
    Backend& own = backend->OnDevice(ordinal);
    const auto stream = own.CreateStream(1).value();
    DeviceBuffer memory = own.Allocate(2 * kCopied).value();
    DeviceBuffer pinned = backend->AllocateHost(2 * kCopied).value();
    std::memset(pinned.data(), 7, kCopied);
    const int64_t before = device.lookups;
    ASSERT_TRUE(own.Copy(*stream, memory.data() + 10, pinned.data(), kCopied).ok());
    ASSERT_TRUE(own.Copy(*stream, pinned.data() + kCopied, memory.data() + 10, kCopied).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    EXPECT_EQ(device.lookups, before);
    EXPECT_EQ(std::memcmp(pinned.data() + kCopied, pinned.data(), kCopied), 0);
    std::vector<std::byte> pageable(kCopied);
    ASSERT_TRUE(own.Copy(*stream, pageable.data(), memory.data() + 10, kCopied).ok());
    EXPECT_EQ(device.lookups, before + 1);
    EXPECT_EQ(std::memcmp(pageable.data(), pinned.data(), kCopied), 0);
  }
  device.devices = 1;
}

TEST(CopyTest, MemoryIsKnownWhileItIsHeld) {
  DeviceWaits waits(std::chrono::seconds(60));
  std::byte* const memory = waits.AllocateDevice(0, kCopied).value();
  std::byte* const pinned = waits.AllocatePinned(0, kCopied).value();
  for (std::byte* const block : {memory, pinned}) {
    EXPECT_FALSE(waits.Holds(block - 1));
    EXPECT_TRUE(waits.Holds(block));
    EXPECT_TRUE(waits.Holds(block + kCopied - 1));
    EXPECT_FALSE(waits.Holds(block + kCopied));
  }
  waits.FreeDevice(0, memory);
  EXPECT_FALSE(waits.Holds(memory));
  EXPECT_TRUE(waits.Holds(pinned));
  waits.FreePinned(0, pinned);
  EXPECT_FALSE(waits.Holds(pinned));
  EXPECT_FALSE(waits.Holds(nullptr));
}

}  // namespace
}  // namespace annulus::cuda
