#include "kernels/cuda/pinned_pool.h"

#include <atomic>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/cuda/emulated_device.h"

namespace annulus::cuda {
namespace {

std::shared_ptr<PinnedPool> MakePool() {
  return std::make_shared<PinnedPool>(std::make_shared<DeviceWaits>(std::chrono::seconds(60)), 0);
}

TEST(PinnedPoolTest, BlocksComeBackForTheNext) {
  const std::atomic<size_t>& pinned = EmulatedDevice::Get().pinned;
  const size_t before = pinned;
  const auto pool = MakePool();
  DeviceBuffer first = pool->Allocate(5000).value();
  EXPECT_EQ(first.size(), 5000u);
  std::byte* const address = first.data();
  first.Reset();
  EXPECT_EQ(pinned - before, 8192u);
  const DeviceBuffer again = pool->Allocate(8192).value();
  EXPECT_EQ(again.data(), address);
  EXPECT_EQ(pinned - before, 8192u);
  const DeviceBuffer other = pool->Allocate(1).value();
  EXPECT_NE(other.data(), address);
}

TEST(PinnedPoolTest, LargeBlocksHaveTheirOwnSize) {
  const std::atomic<size_t>& pinned = EmulatedDevice::Get().pinned;
  const size_t before = pinned;
  const auto pool = MakePool();
  DeviceBuffer large = pool->Allocate(PinnedPool::kMostKept + 4097).value();
  EXPECT_EQ(pinned - before, PinnedPool::kMostKept + 4097);
  large.Reset();
  EXPECT_EQ(pinned, before);
}

TEST(PinnedPoolTest, KeepsNoMoreThanItsBoundAndOutlivesItsOwner) {
  const std::atomic<size_t>& pinned = EmulatedDevice::Get().pinned;
  const size_t before = pinned;
  auto pool = MakePool();
  std::vector<DeviceBuffer> buffers;
  for (int i = 0; i < 3; ++i) {
    buffers.push_back(pool->Allocate(PinnedPool::kMostKept / 2).value());
  }
  buffers[0].Reset();
  buffers[1].Reset();
  buffers[2].Reset();
  EXPECT_EQ(pinned - before, PinnedPool::kMostKept);
  DeviceBuffer last = pool->Allocate(100).value();
  pool.reset();
  last.data()[99] = std::byte{1};  // the block is still there
}

}  // namespace
}  // namespace annulus::cuda
