// Mistakes that a GPU, its driver or CUDA's library would find, perhaps: the emulated devices must.
#include "tests/support/cuda/emulated_device.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/common/launch.h"
#include "tests/support/cuda/emulated_streams.h"

namespace annulus::cuda {
namespace {

void Nothing(const void*) {}

int LaunchNothing(StreamHandle stream, const void* argument, const Grid& grid) {
  return LaunchKernel(stream, reinterpret_cast<const void*>(&Nothing), grid, &argument,
                      sizeof(argument));
}

// Two guarded devices, a late stream of the first.
class EmulatedDeviceDeathTest : public ::testing::Test {
 protected:
  EmulatedDeviceDeathTest() {
    EmulatedDevice::Get().devices = 2;
    EmulatedDevice::Get().guarded = true;
    EmulatedStreams::Get().set_late(true);
    stream_ = OpenStream(0).value();
  }
  ~EmulatedDeviceDeathTest() override {
    EXPECT_TRUE(StreamIdle(stream_).value());
    CloseStream(stream_);
    EmulatedStreams::Get().set_late(false);
    EmulatedDevice::Get().guarded = false;
    EmulatedDevice::Get().devices = 1;
  }

  int Launch(const void* argument, int other_device = -1) {
    return LaunchNothing(stream_, argument, {.threads = 32, .other_device = other_device});
  }

  StreamHandle stream_ = nullptr;
};

TEST_F(EmulatedDeviceDeathTest, LaunchesHaveLimits) {
  const auto launch = [&](const Grid& grid) { LaunchNothing(stream_, nullptr, grid); };
  EXPECT_DEATH(launch({.x = int64_t{1} << 31, .threads = 32}), "a grid of 2147483648 by 1");
  EXPECT_DEATH(launch({.y = 65536, .threads = 32}), "a grid of 1 by 65536");
  EXPECT_DEATH(launch({.x = -1, .threads = 32}), "a grid of -1 by 1");
  EXPECT_DEATH(launch({.threads = 1056}), "1056 threads");
  const size_t most = size_t{227} << 10;
  launch({.threads = 32, .shared_bytes = most});
  EXPECT_DEATH(launch({.threads = 32, .shared_bytes = most + 1}), "where a block may have 232448");
  EmulatedDevice::Get().major = 8;
  EmulatedDevice::Get().minor = 6;
  EXPECT_DEATH(launch({.threads = 32, .shared_bytes = most}), "where a block may have 101376");
  EmulatedDevice::Get().major = 9;
  EmulatedDevice::Get().minor = 0;
}

TEST_F(EmulatedDeviceDeathTest, KernelsAreGivenMemoryThatTheyReach) {
  std::byte* const own = AllocateDevice(0, 100).value();
  std::byte* const others = AllocateDevice(1, 100).value();
  std::byte* const pinned = AllocatePinned(0, 100).value();
  const std::vector<std::byte> host(100);
  ASSERT_TRUE(EnableReach(0, 1).ok());
  ASSERT_TRUE(UseDevice(0).ok());
  EXPECT_EQ(Launch(own), 0);
  EXPECT_EQ(Launch(own + 100), 0) << "a view of nothing";
  EXPECT_EQ(Launch(pinned + 50), 0);
  EXPECT_EQ(Launch(others, /*other_device=*/1), 0);
  EXPECT_DEATH(Launch(others), "is given memory of device 1");
  EXPECT_DEATH(Launch(host.data()), "memory of the host that is not pinned");
  EXPECT_DEATH(
      {
        FreeDevice(0, own);
        Launch(own);
      },
      "point to freed memory");
  FreeDevice(0, own);
  FreeDevice(1, others);
  FreePinned(0, pinned);
}

// Whether tests keep their data where the host can look at it or not.
TEST_F(EmulatedDeviceDeathTest, KernelsAreNotGivenAStackOrStaticMemory) {
  static const float kStatic = 1;
  const float local = 1;
  const std::vector<float> heap(1);
  for (const bool guarded : {false, true}) {
    EmulatedDevice::Get().guarded = guarded;
    EXPECT_DEATH(Launch(&local), "memory of a stack or static memory, at byte 0");
    EXPECT_DEATH(Launch(&kStatic), "memory of a stack or static memory");
    EXPECT_DEATH(std::thread([&] { Launch(&local); }).join(), "memory of a stack");
    EXPECT_DEATH(
        {
          std::thread([&] {
            const float of_thread = 1;
            Launch(&of_thread);
          }).join();
        },
        "memory of a stack");
  }
  EmulatedDevice::Get().guarded = false;
  EXPECT_EQ(Launch(heap.data()), 0);
  EXPECT_TRUE(StreamIdle(stream_).value());
  EmulatedDevice::Get().guarded = true;
}

// Freeing waits for the device that has the memory, and not for another one's kernels and copies.
TEST_F(EmulatedDeviceDeathTest, MemoryStaysUntilItsLastReaderHasEnded) {
  std::byte* const others = AllocateDevice(1, 100).value();
  std::byte* const own = AllocateDevice(0, 100).value();
  std::byte* const pinned = AllocatePinned(0, 100).value();
  ASSERT_TRUE(EnableReach(0, 1).ok());
  ASSERT_TRUE(UseDevice(0).ok());
  EXPECT_DEATH(
      {
        Launch(others, /*other_device=*/1);
        FreeDevice(1, others);
        StreamIdle(stream_).IgnoreError();
      },
      "point to freed memory");
  EXPECT_DEATH(
      {
        CopyAsync(stream_, own, pinned, 100).IgnoreError();
        FreePinned(0, pinned);
        StreamIdle(stream_).IgnoreError();
      },
      "a copy from memory that was freed");
  EXPECT_DEATH(
      {
        Launch(own);
        CloseStream(stream_);
      },
      "closed before its work is done");
  FreeDevice(0, own);
  FreeDevice(1, others);
  FreePinned(0, pinned);
}

TEST_F(EmulatedDeviceDeathTest, CopiesStayInsideOfABlock) {
  std::byte* const block = AllocateDevice(0, 100).value();
  std::byte* const pinned = AllocatePinned(0, 200).value();
  EXPECT_DEATH(
      {
        CopyAsync(stream_, block, pinned, 101).IgnoreError();
        StreamIdle(stream_).IgnoreError();
      },
      "a copy of 101 bytes where a block has 100");
  EXPECT_DEATH(
      {
        CopyAsync(stream_, pinned + 150, block, 51).IgnoreError();
        StreamIdle(stream_).IgnoreError();
      },
      "a copy of 51 bytes where a block has 50");
  FreeDevice(0, block);
  FreePinned(0, pinned);
}

}  // namespace
}  // namespace annulus::cuda
