// Copies between emulated devices: behind the events that were asked for, and not before.
#include "kernels/cuda/links.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/cuda/emulated_nccl.h"
#include "tests/support/cuda/emulated_streams.h"

namespace annulus::cuda {
namespace {

using ::testing::HasSubstr;

class LinksTest : public ::testing::Test {
 protected:
  LinksTest() {
    EmulatedDevice::Get().devices = 2;
    EmulatedDevice::Get().guarded = true;
    EmulatedStreams::Get().set_late(true);
    backend_ = CreateCudaBackends(2).value();
  }
  ~LinksTest() override {
    backend_.reset();
    EmulatedStreams::Get().set_late(false);
    EmulatedDevice::Get().guarded = false;
    EmulatedDevice::Get().reach = true;
    EmulatedDevice::Get().devices = 1;
    EmulatedNccl::Get().library = true;
  }

  Backend& sender() { return *backend_; }
  Backend& receiver() { return backend_->OnDevice(1); }

  std::unique_ptr<Backend> backend_;
};

// More than both staging pieces hold, and of no round length. All streams are late, so the copy
// finds the bytes only if it waits for the sender's event, and the reader only if for the link's.
TEST_F(LinksTest, BothKindsCopyBehindEvents) {
  constexpr size_t kBytes = 2 * kStageBytes + kStageBytes / 2 + 7;
  std::vector<std::byte> pattern(kBytes);
  for (size_t i = 0; i < kBytes; ++i) pattern[i] = static_cast<std::byte>(i * 7 + i / 999);
  for (const LinkKind kind : {LinkKind::kPeer, LinkKind::kStaged}) {
    DeviceBuffer from = sender().Allocate(kBytes).value();
    DeviceBuffer to = receiver().Allocate(kBytes + 64).value();
    const auto link = receiver().OpenLink(sender(), kind).value();
    const auto writer = sender().CreateStream(1).value();
    const auto reader = receiver().CreateStream(1).value();
    const auto written = sender().CreateEvent(false).value();
    const auto arrived = receiver().CreateEvent(false).value();
    const auto before = receiver().CreateEvent(true).value();
    const auto after = receiver().CreateEvent(true).value();
    ASSERT_TRUE(sender().Copy(*writer, from.data(), pattern.data(), kBytes).ok());
    ASSERT_TRUE(writer->Record(*written).ok());
    const std::vector<DeviceCopy> copies = {{to.data() + 64, from.data(), 100},
                                            {to.data() + 164, from.data() + 100, kBytes - 100}};
    const std::vector<const Event*> events = {written.get()};
    ASSERT_TRUE(link->Copy(copies, events, *arrived).ok());
    ASSERT_TRUE(reader->Record(*before).ok());
    ASSERT_TRUE(reader->Await(*arrived).ok());
    ASSERT_TRUE(reader->Record(*after).ok());
    std::vector<std::byte> seen(kBytes);
    ASSERT_TRUE(receiver().Copy(*reader, seen.data(), to.data() + 64, kBytes).ok());
    ASSERT_TRUE(reader->Synchronize().ok());
    EXPECT_TRUE(seen == pattern) << static_cast<int>(kind);
    EXPECT_GT(receiver().SecondsBetween(*before, *after).value(), 0);
    ASSERT_TRUE(link->Drain().ok());
  }
}

TEST_F(LinksTest, PeersWithoutReachAreRefused) {
  EmulatedDevice::Get().reach = false;
  const absl::Status refused = receiver().OpenLink(sender(), LinkKind::kPeer).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("does not reach memory of GPU 0"));
  EXPECT_TRUE(receiver().OpenLink(sender(), LinkKind::kStaged).ok());
}

TEST_F(LinksTest, GroupsNeedTheLibraryAndADeviceForEachRank) {
  constexpr std::chrono::milliseconds kTimeout{1000};
  EXPECT_EQ(backend_->OpenGroup(2, kTimeout).value().size(), 2u);
  EXPECT_THAT(std::string(backend_->OpenGroup(3, kTimeout).status().message()),
              HasSubstr("a GPU for each of 3 ranks"));
  EmulatedNccl::Get().library = false;
  EXPECT_EQ(backend_->OpenGroup(2, kTimeout).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

using LinksDeathTest = LinksTest;

TEST_F(LinksDeathTest, AStreamCannotCopyAnotherDevicesMemory) {
  DeviceBuffer other = receiver().Allocate(64).value();
  const auto stream = sender().CreateStream(1).value();
  std::vector<std::byte> host(64);
  EXPECT_DEATH(sender().Copy(*stream, other.data(), host.data(), 64).IgnoreError(),
               "touches another one's memory");
}

}  // namespace
}  // namespace annulus::cuda
