// Copies between emulated devices: behind the events that were asked for, and not before.
#include "kernels/cuda/nccl/links.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/error.h"
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
    EmulatedDevice::Get().copy_error = 0;
    EmulatedDevice::Get().devices = 1;
    EmulatedNccl::Get().library = true;
  }

  Backend& sender() { return *backend_; }
  Backend& receiver() { return backend_->OnDevice(1); }

  // A link, a stream of each side, and events of what the sender has written and what has arrived.
  struct Ends {
    std::unique_ptr<DeviceLink> link;
    std::unique_ptr<Stream> writer;
    std::unique_ptr<Stream> reader;
    std::unique_ptr<Event> written;
    std::unique_ptr<Event> arrived;
  };
  Ends Open(LinkKind kind) {
    return {receiver().OpenLink(sender(), kind).value(), sender().CreateStream(1).value(),
            receiver().CreateStream(1).value(), sender().CreateEvent(false).value(),
            receiver().CreateEvent(false).value()};
  }

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
    const auto [link, writer, reader, written, arrived] = Open(kind);
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

// Pages from here and there, of several lengths, more than one launch takes; two that a kernel
// cannot read by words of 16 bytes are left to calls, and so is a message of few.
TEST_F(LinksTest, ManyCopiesFromAPeerAreOneKernel) {
  std::mt19937 random(9);
  const auto [link, writer, reader, written, arrived] = Open(LinkKind::kPeer);
  const std::vector<const Event*> events = {written.get()};
  struct Message {
    size_t copies;
    bool odd;  // the first two do not fit
    int calls;
  };
  for (const Message& message :
       {Message{300, false, 0}, Message{150, true, 2}, Message{4, false, 0}, Message{3, false, 3},
        Message{5, true, 5}, Message{1, true, 1}}) {
    SCOPED_TRACE(message.copies);
    std::vector<size_t> offsets;  // of the copies, apart from each other, in both memories
    std::vector<size_t> sizes;
    size_t total = 0;
    for (size_t i = 0; i < message.copies; ++i) {
      sizes.push_back(16 * (1 + random() % (i % 7 == 3 ? 5000 : 90)));
      offsets.push_back(total);
      total += sizes.back() + 16 * (1 + random() % 3);
    }
    if (message.odd) {
      sizes[0] -= 1;
      if (message.copies > 1) offsets[1] += 8;
    }
    std::vector<std::byte> pattern(total);
    for (std::byte& b : pattern) b = static_cast<std::byte>(random());
    DeviceBuffer from = sender().Allocate(total).value();
    DeviceBuffer to = receiver().Allocate(total).value();
    std::vector<std::byte> expected(total, std::byte{0x11});
    ASSERT_TRUE(sender().Copy(*writer, from.data(), pattern.data(), total).ok());
    ASSERT_TRUE(writer->Record(*written).ok());
    ASSERT_TRUE(receiver().Copy(*reader, to.data(), expected.data(), total).ok());
    ASSERT_TRUE(reader->Synchronize().ok());
    std::vector<DeviceCopy> copies;
    for (size_t i = 0; i < message.copies; ++i) {
      copies.push_back({to.data() + offsets[i], from.data() + offsets[i], sizes[i]});
      std::copy_n(pattern.begin() + static_cast<int64_t>(offsets[i]), sizes[i],
                  expected.begin() + static_cast<int64_t>(offsets[i]));
    }
    const int before = EmulatedDevice::Get().copies_between;
    ASSERT_TRUE(link->Copy(copies, events, *arrived).ok());
    EXPECT_EQ(EmulatedDevice::Get().copies_between - before, message.calls);
    ASSERT_TRUE(reader->Await(*arrived).ok());
    std::vector<std::byte> seen(total);
    ASSERT_TRUE(receiver().Copy(*reader, seen.data(), to.data(), total).ok());
    ASSERT_TRUE(reader->Synchronize().ok());
    EXPECT_TRUE(seen == expected);
    ASSERT_TRUE(link->Drain().ok());
  }
}

// Parts that come from here and there, and go to places side by side, are packed into the pinned
// pieces: a piece leaves by one copy, whatever is in it.
TEST_F(LinksTest, StagedPartsSharePieces) {
  std::mt19937 random(4);
  const auto [link, writer, reader, written, arrived] = Open(LinkKind::kStaged);
  const std::vector<const Event*> events = {written.get()};
  struct Message {
    size_t parts;
    size_t bytes;      // of each
    size_t apart;      // one behind the other in the target
    int64_t copies;    // by calls: into pieces, and out of them
    int64_t launches;  // of the kernel that packs, 128 parts at a time
  };
  for (const Message& message : {
           Message{300, 4096, 4096, 2, 3},           // two pieces, of 256 and 44 parts
           Message{10, 256 << 10, 256 << 10, 5, 2},  // three, the last of two parts, by calls
           Message{200, 48, 64, 1, 2},               // with gaps that may be written to
           Message{200, 60, 64, 201, 0},             // no words of 16 bytes
           Message{5, 64, 128, 10, 0},               // gaps that must stay: a piece each
           Message{1, (5 << 20) / 2 + 16, 0, 6, 0},  // two pieces and a half
       }) {
    SCOPED_TRACE(absl::StrCat(message.parts, " parts of ", message.bytes));
    const size_t from_apart = message.bytes + 16 * (1 + random() % 3);
    const size_t total_from = message.parts * from_apart;
    const size_t total_to = message.parts * std::max(message.apart, message.bytes);
    std::vector<std::byte> pattern(total_from);
    for (std::byte& b : pattern) b = static_cast<std::byte>(random());
    DeviceBuffer from = sender().Allocate(total_from).value();
    DeviceBuffer to = receiver().Allocate(total_to).value();
    const std::vector<std::byte> before(total_to, std::byte{0x11});
    ASSERT_TRUE(sender().Copy(*writer, from.data(), pattern.data(), total_from).ok());
    ASSERT_TRUE(writer->Record(*written).ok());
    ASSERT_TRUE(receiver().Copy(*reader, to.data(), before.data(), total_to).ok());
    ASSERT_TRUE(reader->Synchronize().ok());
    std::vector<DeviceCopy> copies;
    for (size_t i = 0; i < message.parts; ++i) {
      copies.push_back(
          {to.data() + i * message.apart, from.data() + i * from_apart, message.bytes});
    }
    const int64_t calls = EmulatedDevice::Get().copies;
    const int64_t launches = EmulatedDevice::Get().launches;
    ASSERT_TRUE(link->Copy(copies, events, *arrived).ok());
    EXPECT_EQ(EmulatedDevice::Get().copies - calls, message.copies);
    EXPECT_EQ(EmulatedDevice::Get().launches - launches, message.launches);
    ASSERT_TRUE(reader->Await(*arrived).ok());
    std::vector<std::byte> seen(total_to);
    ASSERT_TRUE(receiver().Copy(*reader, seen.data(), to.data(), total_to).ok());
    ASSERT_TRUE(reader->Synchronize().ok());
    for (size_t i = 0; i < message.parts; ++i) {
      const auto part = seen.begin() + static_cast<int64_t>(i * message.apart);
      EXPECT_TRUE(std::equal(part, part + static_cast<int64_t>(message.bytes),
                             pattern.begin() + static_cast<int64_t>(i * from_apart)))
          << i;
      if (message.apart < message.bytes + kPartAlignment) continue;
      EXPECT_EQ(part[static_cast<int64_t>(message.bytes)], std::byte{0x11}) << i;
    }
    ASSERT_TRUE(link->Drain().ok());
  }
}

// A copy that is refused is the link's status, and nothing of it is left on the way.
TEST_F(LinksTest, ARefusedCopyIsAStatus) {
  const auto link = receiver().OpenLink(sender(), LinkKind::kStaged).value();
  const auto arrived = receiver().CreateEvent(false).value();
  DeviceBuffer from = sender().Allocate(256).value();
  DeviceBuffer to = receiver().Allocate(256).value();
  EmulatedDevice::Get().copy_error = kIllegalAddress;
  const std::vector<DeviceCopy> copies = {{to.data(), from.data(), 256}};
  EXPECT_EQ(link->Copy(copies, {}, *arrived).code(), absl::StatusCode::kUnavailable);
  EmulatedDevice::Get().copy_error = 0;
  EXPECT_TRUE(link->Drain().ok());
  EXPECT_TRUE(link->Copy(copies, {}, *arrived).ok());
  EXPECT_TRUE(link->Drain().ok());
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
