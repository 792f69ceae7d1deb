// Rings of emulated GPUs. Ranks of one hand addresses over: what a stream reads and writes of
// another one's is ordered by events, and no host waits. Streams are late, so a wait that is
// missing reads bytes that nobody has written, or that were written too early.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/ring/open_ring.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/error.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/cuda/emulated_streams.h"

namespace annulus {
namespace {

using namespace std::chrono_literals;
using cuda::EmulatedDevice;
using cuda::EmulatedStreams;
using ::testing::HasSubstr;

constexpr size_t kBytes = 4096;

class AddressesTest : public ::testing::Test {
 protected:
  AddressesTest() {
    EmulatedDevice::Get().guarded = true;
    EmulatedStreams::Get().set_late(true);
    device_ = CreateCudaBackends(1).value();
    for (auto& stream : streams_) stream = device_->CreateStream(1).value();
    events_before_ = EmulatedDevice::Get().events;
    ring_ = OpenRing(RingTransport::kAuto, *device_, 2, 1s).value();
  }
  ~AddressesTest() override {
    const int own = static_cast<int>(std::size(streams_));  // an event each
    for (auto& stream : streams_) stream.reset();
    ring_.reset();
    EXPECT_EQ(EmulatedDevice::Get().events, events_before_ - own);
    for (auto& sources : sources_) sources.clear();
    device_.reset();
    EmulatedStreams::Get().set_late(false);
    EmulatedDevice::Get().guarded = false;
    EmulatedDevice::Get().event_error = 0;
  }

  DeviceBuffer Memory() { return device_->Allocate(kBytes).value(); }
  // Enqueued, like an op: of pinned memory, for which nobody waits.
  void Fill(int rank, DeviceBuffer& memory, int value) {
    DeviceBuffer& bytes = sources_[rank].emplace_back(device_->AllocateHost(kBytes).value());
    std::memset(bytes.data(), value, kBytes);
    ASSERT_TRUE(device_->Copy(*streams_[rank], memory.data(), bytes.data(), kBytes).ok());
  }
  void Read(int rank, const RingPart& part, DeviceBuffer& into) {
    ASSERT_TRUE(device_->Copy(*streams_[rank], into.data(), part.data, part.bytes).ok());
  }
  absl::Status Send(int from, uint64_t tag, DeviceBuffer& memory) {
    const RingMessage sent{1 - from, tag, {{memory.data(), kBytes}}};
    return ring_->channel(from).Post(*streams_[from], {&sent, 1}, {}, Later());
  }
  absl::StatusOr<RingPart> Receive(int to, uint64_t tag, std::chrono::milliseconds limit = 5s) {
    const size_t bytes[] = {kBytes};
    auto parts = ring_->channel(to).Receive(*streams_[to], 1 - to, tag, bytes,
                                            std::chrono::steady_clock::now() + limit);
    if (!parts.ok()) return parts.status();
    return (*parts)[0];
  }
  // Waits for the rank's stream alone.
  void ExpectHolds(int rank, const DeviceBuffer& memory, int value) {
    std::vector<std::byte> seen(kBytes);
    ASSERT_TRUE(device_->Copy(*streams_[rank], seen.data(), memory.data(), kBytes).ok());
    EXPECT_EQ(std::count(seen.begin(), seen.end(), static_cast<std::byte>(value)), kBytes);
  }
  static SteadyTime Later() { return std::chrono::steady_clock::now() + 1s; }

  int events_before_ = 0;
  std::unique_ptr<Backend> device_;
  std::unique_ptr<RingGroup> ring_;
  std::unique_ptr<Stream> streams_[2];    // [rank]
  std::vector<DeviceBuffer> sources_[2];  // [rank] of Fill, which each may call on its own thread
};

TEST_F(AddressesTest, AReaderWaitsForTheWriterOnTheDeviceAlone) {
  DeviceBuffer sent = Memory();
  DeviceBuffer copy = Memory();
  const int64_t waits = EmulatedDevice::Get().host_waits;
  Fill(0, sent, 1);
  ASSERT_TRUE(Send(0, 7, sent).ok());
  const auto part = Receive(1, 7);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->data, sent.data());
  Read(1, *part, copy);
  EXPECT_EQ(EmulatedDevice::Get().host_waits, waits);
  ExpectHolds(1, copy, 1);
}

// Whoever has the answer may write over what was asked, in the stream's order: the reader has read.
TEST_F(AddressesTest, AnAnswerOrdersBehindTheReading) {
  DeviceBuffer query = Memory();
  DeviceBuffer state = Memory();
  DeviceBuffer merged = Memory();
  const int64_t waits = EmulatedDevice::Get().host_waits;
  for (int round = 1; round <= 20; ++round) {
    Fill(0, query, round);
    ASSERT_TRUE(Send(0, 2 * round, query).ok());
    const auto asked = Receive(1, 2 * round);
    ASSERT_TRUE(asked.ok()) << asked.status();
    Read(1, *asked, state);  // over what the peer merged in the last round
    ASSERT_TRUE(Send(1, 2 * round + 1, state).ok());
    const auto answer = Receive(0, 2 * round + 1);
    ASSERT_TRUE(answer.ok()) << answer.status();
    Read(0, *answer, merged);
  }
  Fill(0, query, 99);
  EXPECT_EQ(EmulatedDevice::Get().host_waits, waits);
  // Of a round only the two messages' events are in use, and each rank has two marks for each
  // Receive.
  EXPECT_LE(EmulatedDevice::Get().events - events_before_, 2 + 2 * 20 * 2);
  ExpectHolds(0, query, 99);
  ExpectHolds(0, merged, 20);
  ExpectHolds(1, state, 20);
}

TEST_F(AddressesTest, WhatAStreamStoodStillIsExposedWait) {
  DeviceBuffer sent = Memory();
  EmulatedStreams::Get().Enqueue(static_cast<cuda::CudaStream&>(*streams_[0]).handle(), [] {
    std::this_thread::sleep_for(30ms);
    return true;
  });
  Fill(0, sent, 1);
  ASSERT_TRUE(Send(0, 7, sent).ok());
  ASSERT_TRUE(Receive(1, 7).ok());
  ASSERT_TRUE(streams_[1]->Synchronize().ok());
  EXPECT_GE(ring_->channel(1).TakeStreamWaits().value(), 0.03);
  EXPECT_EQ(ring_->channel(1).TakeStreamWaits().value(), 0);
  EXPECT_EQ(ring_->channel(0).TakeStreamWaits().value(), 0);
}

// Each rank on a thread of its own, like those of the engine.
TEST_F(AddressesTest, RanksOnThreadsOfTheirOwn) {
  constexpr int kRounds = 20;
  std::vector<DeviceBuffer> sent[2], copies[2];
  for (int rank = 0; rank < 2; ++rank) {
    for (int round = 0; round < kRounds; ++round) {
      sent[rank].push_back(Memory());
      copies[rank].push_back(Memory());
    }
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      for (int round = 0; round < kRounds; ++round) {
        Fill(rank, sent[rank][round], 2 * round + rank);
        ASSERT_TRUE(Send(rank, round, sent[rank][round]).ok());
        const auto part = Receive(rank, round);
        ASSERT_TRUE(part.ok()) << part.status();
        Read(rank, *part, copies[rank][round]);
      }
      ASSERT_TRUE(streams_[rank]->Synchronize().ok());
      EXPECT_GE(ring_->channel(rank).TakeStreamWaits().value(), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < 2; ++rank) {
    for (int round = 0; round < kRounds; ++round) {
      ExpectHolds(rank, copies[rank][round], 2 * round + 1 - rank);
    }
  }
}

// Messages of host parts are written when they are posted.
TEST_F(AddressesTest, HostPartsNeedNoEvent) {
  std::vector<std::byte> host(kBytes);
  const RingMessage sent{1, 3, {{host.data(), kBytes}}, /*host=*/true};
  ASSERT_TRUE(ring_->channel(0).Post(*streams_[0], {&sent, 1}, {}, Later()).ok());
  const auto part = Receive(1, 3);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->data, host.data());
  EXPECT_EQ(EmulatedDevice::Get().events, events_before_);
}

// Events may go while streams still wait for them: of messages that were received and of others.
TEST_F(AddressesTest, TheRingMayGoBeforeItsStreamsAreDone) {
  DeviceBuffer sent = Memory();
  DeviceBuffer copy = Memory();
  Fill(0, sent, 1);
  ASSERT_TRUE(Send(0, 7, sent).ok());
  const auto part = Receive(1, 7);
  ASSERT_TRUE(part.ok()) << part.status();
  Read(1, *part, copy);
  ASSERT_TRUE(Send(0, 8, sent).ok());
  ring_.reset();
  EXPECT_EQ(EmulatedDevice::Get().events, events_before_);
  ExpectHolds(1, copy, 1);
}

// An end of the epoch leaves earlier waits as they are; what is sent next has events of the same
// pool.
TEST_F(AddressesTest, WaitsOutliveAnAbort) {
  DeviceBuffer first = Memory();
  DeviceBuffer second = Memory();
  DeviceBuffer copies[2] = {Memory(), Memory()};
  Fill(0, first, 1);
  ASSERT_TRUE(Send(0, 7, first).ok());
  const auto part = Receive(1, 7);
  ASSERT_TRUE(part.ok()) << part.status();
  Read(1, *part, copies[0]);
  ASSERT_TRUE(Send(0, 8, first).ok());
  ring_->channel(1).Abort(absl::CancelledError("rank 1 broke"));
  EXPECT_EQ(Receive(1, 8).status().message(), "rank 1 broke");
  EXPECT_EQ(Send(0, 9, first).message(), "rank 1 broke");
  ASSERT_TRUE(ring_->Reset().ok());
  EXPECT_EQ(Receive(1, 8, 20ms).status().code(), absl::StatusCode::kDeadlineExceeded);
  Fill(0, second, 2);
  ASSERT_TRUE(Send(0, 9, second).ok());
  const auto next = Receive(1, 9);
  ASSERT_TRUE(next.ok()) << next.status();
  Read(1, *next, copies[1]);
  ExpectHolds(1, copies[0], 1);
  ExpectHolds(1, copies[1], 2);
}

// A message whose event cannot be recorded is not sent.
TEST_F(AddressesTest, ARefusedEventIsTheSendersStatus) {
  DeviceBuffer sent = Memory();
  Fill(0, sent, 1);
  EmulatedDevice::Get().event_error = cuda::kIllegalAddress;
  EXPECT_THAT(std::string(Send(0, 7, sent).message()), HasSubstr("recording an event"));
  EmulatedDevice::Get().event_error = 0;
  EXPECT_EQ(Receive(1, 7, 20ms).status().code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(Send(0, 7, sent).ok());
  EXPECT_TRUE(Receive(1, 7).ok());
}

// Two GPUs, whose ranks post and receive on threads of their own. Few parts: no kernel runs, whose
// emulated threads the thread sanitizer does not know.
TEST(EmulatedRing, ThreadsOfTwoDevicesExchangeByEveryTransport) {
  constexpr int kRounds = 20;
  constexpr size_t kPart = 100;
  constexpr size_t kSlot = 256;
  EmulatedDevice::Get().devices = 2;
  EmulatedStreams::Get().set_late(true);
  for (const RingTransport transport :
       {RingTransport::kPeer, RingTransport::kStaged, RingTransport::kNccl}) {
    SCOPED_TRACE(static_cast<int>(transport));
    const auto devices = CreateCudaBackends(2).value();
    const auto ring = OpenRing(transport, *devices, 2, 5s).value();
    DeviceBuffer owns[2], slots[2], areas[2];
    std::unique_ptr<Stream> streams[2];
    for (int rank = 0; rank < 2; ++rank) {
      Backend& device = devices->OnDevice(rank);
      RingChannel& channel = ring->channel(rank);
      owns[rank] = device.Allocate(kRounds * kPart).value();
      slots[rank] = device.Allocate(kRounds * kSlot).value();
      areas[rank] = device.Allocate(channel.send_bytes()).value();
      channel.UseSendArea({areas[rank].data(), areas[rank].size()});
      streams[rank] = device.CreateStream(1).value();
    }
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        Backend& device = devices->OnDevice(rank);
        RingChannel& channel = ring->channel(rank);
        Stream& stream = *streams[rank];
        const std::vector<size_t> bytes = {kPart - 30, 30};
        for (int round = 0; round < kRounds; ++round) {
          const SteadyTime deadline = std::chrono::steady_clock::now() + 20s;
          const std::vector<std::byte> value(kPart, static_cast<std::byte>(2 * round + rank));
          std::byte* const data = owns[rank].data() + round * kPart;
          ASSERT_TRUE(device.Copy(stream, data, value.data(), kPart).ok());
          const RingMessage sent{1 - rank, 7, {{data, bytes[0]}, {data + bytes[0], bytes[1]}}};
          const RingExpectation expected{1 - rank, 7, bytes, slots[rank].data() + round * kSlot};
          const absl::Status posted = channel.Post(stream, {&sent, 1}, {&expected, 1}, deadline);
          ASSERT_TRUE(posted.ok()) << posted;
          const auto parts = channel.Receive(stream, 1 - rank, 7, bytes, deadline);
          ASSERT_TRUE(parts.ok()) << parts.status();
          std::vector<std::byte> seen(bytes[1]);
          ASSERT_TRUE(device.Copy(stream, seen.data(), (*parts)[1].data, bytes[1]).ok());
          EXPECT_EQ(seen.back(), static_cast<std::byte>(2 * round + 1 - rank));
        }
        ASSERT_TRUE(stream.Synchronize().ok());
        EXPECT_GE(channel.TakeStreamWaits().value(), 0);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EmulatedStreams::Get().set_late(false);
  EmulatedDevice::Get().devices = 1;
}

}  // namespace
}  // namespace annulus
