#include "kernels/base/device_buffer.h"

#include <utility>

#include "gtest/gtest.h"

namespace annulus {
namespace {

// A buffer over `block` that counts its releases.
DeviceBuffer Counted(std::byte* block, size_t bytes, int* released) {
  return DeviceBuffer(block, bytes, [released](std::byte*) { ++*released; });
}

TEST(DeviceBuffer, ReleasesOnceWhenDestroyed) {
  std::byte block[64];
  int released = 0;
  {
    DeviceBuffer buffer = Counted(block, sizeof(block), &released);
    EXPECT_EQ(buffer.data(), block);
    EXPECT_EQ(buffer.size(), sizeof(block));
    EXPECT_EQ(buffer.as<float>(), reinterpret_cast<float*>(block));
  }
  EXPECT_EQ(released, 1);
}

TEST(DeviceBuffer, MovingHandsOverTheMemory) {
  std::byte first[64];
  std::byte second[32];
  int first_released = 0;
  int second_released = 0;
  DeviceBuffer a = Counted(first, sizeof(first), &first_released);
  DeviceBuffer b(std::move(a));
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(a.size(), 0u);
  EXPECT_EQ(b.data(), first);
  DeviceBuffer c = Counted(second, sizeof(second), &second_released);
  c = std::move(b);
  EXPECT_EQ(second_released, 1);
  EXPECT_EQ(c.data(), first);
  DeviceBuffer& self = c;
  c = std::move(self);
  EXPECT_EQ(c.data(), first);
  EXPECT_EQ(first_released, 0);
}

TEST(DeviceBuffer, ResetEmptiesIt) {
  std::byte block[64];
  int released = 0;
  DeviceBuffer buffer = Counted(block, sizeof(block), &released);
  buffer.Reset();
  buffer.Reset();
  EXPECT_EQ(released, 1);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size(), 0u);
}

}  // namespace
}  // namespace annulus
