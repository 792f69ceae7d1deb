// What every channel promises (channel.h), and which is taken.
#include <array>
#include <barrier>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/ring/open_ring.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/engine/ring/separate_devices.h"
#include "tests/support/manual_clock.h"
#include "tests/support/wire_rings.h"

namespace annulus {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::ManualClock;
using ::testing::Not;
using testing::SeparateDevices;

using Bytes = std::array<std::byte, 64>;

Bytes Filled(int value) {
  Bytes bytes;
  bytes.fill(static_cast<std::byte>(value));
  return bytes;
}

RingPart PartOf(const Bytes& bytes) { return {bytes.data(), bytes.size()}; }

// What carries messages: a transport (kAuto: on one device), or wires.
struct Carried {
  std::string name;
  RingTransport transport = RingTransport::kAuto;
  std::optional<testing::WireKind> wires;
};

// A ring of three ranks.
class TransportTest : public ::testing::TestWithParam<Carried> {
 protected:
  TransportTest()
      : processor_(CreateCpuBackend().value()),
        devices_(*processor_, GetParam().transport == RingTransport::kAuto ? 1 : 3),
        stream_(processor_->CreateStream(1).value()) {}

  void SetUp() override {
    if (wires()) {
      const absl::Status possible = testing::CanTest(*GetParam().wires);
      if (!possible.ok()) GTEST_SKIP() << possible.message();
      ring_ = testing::OpenWireRing(*GetParam().wires, 3, clock_).value();
    } else {
      ring_ = OpenRing(GetParam().transport, devices_, 3, 1s, clock_).value();
    }
  }

  // Addresses mean nothing to ranks of another process: all is copied.
  bool wires() const { return GetParam().wires.has_value(); }

  absl::Status Send(int from, int to, uint64_t tag, std::vector<RingPart> parts,
                    bool host = false) {
    const RingMessage message{to, tag, std::move(parts), host};
    absl::Status status = ring_->channel(from).Post(*stream_, {&message, 1}, {}, Later(1s));
    if (status.ok()) status = ring_->channel(from).Flush(Later(1s));
    return status;
  }
  absl::Status Expect(int to, int from, uint64_t tag, std::vector<size_t> bytes, std::byte* into,
                      bool host = false) {
    const RingExpectation expected{from, tag, std::move(bytes), into, host};
    return ring_->channel(to).Post(*stream_, {}, {&expected, 1}, Later(1s));
  }
  absl::StatusOr<RingParts> Receive(int to, int from, uint64_t tag,
                                    const std::vector<size_t>& bytes,
                                    std::chrono::milliseconds limit = 5s) {
    return ring_->channel(to).Receive(*stream_, from, tag, bytes, Later(limit));
  }
  SteadyTime Later(std::chrono::milliseconds delay) const { return clock_.Now() + delay; }

  ManualClock clock_;
  const std::unique_ptr<Backend> processor_;
  SeparateDevices devices_;
  std::unique_ptr<RingGroup> ring_;
  const std::unique_ptr<Stream> stream_;
};

TEST_P(TransportTest, MessagesArriveInOrderWhateverWasPostedFirst) {
  const Bytes one = Filled(1), two = Filled(2), three = Filled(3);
  std::array<Bytes, 3> into{};
  ASSERT_TRUE(Send(0, 2, 7, {PartOf(one)}).ok());
  ASSERT_TRUE(Expect(2, 0, 7, {64}, into[0].data()).ok());
  ASSERT_TRUE(Expect(2, 0, 8, {64, 64}, into[1].data()).ok());
  ASSERT_TRUE(Send(0, 2, 8, {PartOf(two), PartOf(three)}).ok());
  const auto first = Receive(2, 0, 7, {64});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)[0].data[63], std::byte{1});
  const auto second = Receive(2, 0, 8, {64, 64});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)[0].data[0], std::byte{2});
  EXPECT_EQ((*second)[1].data[5], std::byte{3});
  EXPECT_EQ((*second)[0].data == two.data(), !ring_->channel(2).copies());
}

TEST_P(TransportTest, HostPartsArriveInTheirPlaceOrAreReadWhereTheyLie) {
  const Bytes host = Filled(4), own = Filled(5);
  Bytes into{}, place{};
  EXPECT_EQ(ring_->channel(0).copies_host(), wires());
  ASSERT_TRUE(Send(1, 0, 1, {PartOf(host)}, true).ok());
  ASSERT_TRUE(Send(1, 0, 2, {PartOf(own)}).ok());
  ASSERT_TRUE(Expect(0, 1, 1, {64}, wires() ? place.data() : nullptr, true).ok());
  ASSERT_TRUE(Expect(0, 1, 2, {64}, into.data()).ok());
  const auto first = Receive(0, 1, 1, {64});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)[0].data, wires() ? place.data() : host.data());
  EXPECT_EQ((*first)[0].data[63], std::byte{4});
  const auto second = Receive(0, 1, 2, {64});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)[0].data[0], std::byte{5});
  // What copies refuses to expect without a place.
  EXPECT_EQ(Expect(0, 1, 3, {64}, nullptr, true).ok(), !wires());
}

TEST_P(TransportTest, AnotherTagOrSizeIsAnErrorOfTheReceiver) {
  const Bytes bytes = Filled(1);
  Bytes into{};
  for (const bool tag : {false, true}) {
    ASSERT_TRUE(Send(0, 1, 7, {PartOf(bytes)}, true).ok());
    ASSERT_TRUE(Expect(1, 0, tag ? 9 : 7, {tag ? 64u : 63u}, into.data(), true).ok());
    EXPECT_EQ(Receive(1, 0, tag ? 9 : 7, {tag ? 64u : 63u}).status().code(),
              absl::StatusCode::kInternal);
    ring_->channel(1).Abort(absl::InternalError("another message"));
    ASSERT_TRUE(ring_->Reset().ok());
  }
  // What is expected in a device's memory cannot come from the host's.
  if (!ring_->channel(0).copies() || wires()) return;
  ASSERT_TRUE(Send(0, 1, 7, {PartOf(bytes)}).ok());
  ASSERT_TRUE(Expect(1, 0, 7, {64}, nullptr, true).ok());
  EXPECT_EQ(Receive(1, 0, 7, {64}).status().code(), absl::StatusCode::kInternal);
}

TEST_P(TransportTest, AReceiveEndsAtItsDeadlineAndMayBeRepeated) {
  Bytes into{};
  const Bytes bytes = Filled(6);
  ASSERT_TRUE(Expect(1, 0, 3, {64}, into.data()).ok());
  std::thread time([&] {
    EXPECT_TRUE(clock_.WaitForWaiters(1));
    clock_.Advance(1h);
  });
  const auto late = Receive(1, 0, 3, {64}, 1h);
  time.join();
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("rank 0"));
  ASSERT_TRUE(Send(0, 1, 3, {PartOf(bytes)}).ok());
  const auto again = Receive(1, 0, 3, {64});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)[0].data[0], std::byte{6});
}

TEST_P(TransportTest, AbortWakesAllWaitersWithTheFirstStatusUntilReset) {
  std::vector<std::thread> waiters;
  std::array<absl::Status, 2> statuses;
  for (int rank = 1; rank < 3; ++rank) {
    waiters.emplace_back([&, rank] {
      Bytes into{};
      statuses[rank - 1] = Expect(rank, 0, 1, {64}, into.data());
      if (statuses[rank - 1].ok()) statuses[rank - 1] = Receive(rank, 0, 1, {64}, 60s).status();
    });
  }
  ASSERT_TRUE(clock_.WaitForWaiters(2));
  ring_->channel(0).Abort(absl::InternalError("rank 0 broke"));
  ring_->channel(0).Abort(absl::InternalError("later"));
  for (std::thread& waiter : waiters) waiter.join();
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 broke"));
  }
  const Bytes bytes = Filled(7);
  EXPECT_EQ(Send(2, 1, 1, {PartOf(bytes)}).message(), "rank 0 broke");
  ASSERT_TRUE(ring_->Reset().ok());
  Bytes into{};
  ASSERT_TRUE(Send(2, 1, 1, {PartOf(bytes)}).ok());
  ASSERT_TRUE(Expect(1, 2, 1, {64}, into.data()).ok());
  const auto after = Receive(1, 2, 1, {64});
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ((*after)[0].data[0], std::byte{7});
}

// Rounds in one order on all ranks: a transport that joins sends and receives of a round cannot
// make ranks wait for each other in a circle.
TEST_P(TransportTest, RoundsOfAllWithAllEnd) {
  constexpr int kRounds = 50;
  std::vector<std::thread> threads;
  std::array<absl::Status, 3> statuses;
  std::barrier<> finished(3);
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto stream = processor_->CreateStream(1).value();
      RingChannel& channel = ring_->channel(rank);
      std::vector<Bytes> own(kRounds);
      std::vector<std::array<Bytes, 3>> into(kRounds);
      const auto run = [&]() -> absl::Status {
        for (int round = 0; round < kRounds; ++round) {
          own[round] = Filled(3 * round + rank);
          std::vector<RingMessage> sent;
          std::vector<RingExpectation> expected;
          const auto tag = static_cast<uint64_t>(round);
          for (int peer = 0; peer < 3; ++peer) {
            if (peer == rank) continue;
            sent.push_back({peer, tag, {PartOf(own[round])}});
            expected.push_back({peer, tag, {64}, into[round][peer].data()});
          }
          absl::Status status = channel.Post(*stream, sent, expected, Later(5s));
          if (!status.ok()) return status;
          for (int peer = 0; peer < 3; ++peer) {
            if (peer == rank) continue;
            const size_t bytes[] = {64};
            const auto parts = channel.Receive(*stream, peer, tag, bytes, Later(5s));
            if (!parts.ok()) return parts.status();
            if ((*parts)[0].data[9] != static_cast<std::byte>(3 * round + peer)) {
              return absl::DataLossError("other bytes");
            }
          }
        }
        return absl::OkStatus();
      };
      statuses[rank] = run();
      statuses[rank].Update(channel.Flush(Later(5s)));
      finished.arrive_and_wait();  // peers may still read what this rank sent
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

INSTANTIATE_TEST_SUITE_P(
    All, TransportTest,
    ::testing::Values(Carried{"Addresses", RingTransport::kAuto, {}},
                      Carried{"Peer", RingTransport::kPeer, {}},
                      Carried{"Staged", RingTransport::kStaged, {}},
                      Carried{"Nccl", RingTransport::kNccl, {}},
                      Carried{"MemoryWires", RingTransport::kAuto, testing::WireKind::kMemory},
                      Carried{"UcxWires", RingTransport::kAuto, testing::WireKind::kUcx}),
    [](const auto& info) { return info.param.name; });

// What rank 1 gets of a message of rank 0 within `patience`, where groups have faults.
absl::Status ReceiveByGroup(SeparateDevices::Faults faults, std::chrono::milliseconds patience) {
  const auto processor = CreateCpuBackend().value();
  SeparateDevices devices(*processor, 2, faults);
  const auto ring = OpenRing(RingTransport::kNccl, devices, 2, 1s).value();
  const auto stream = processor->CreateStream(1).value();
  const Bytes bytes = Filled(1);
  Bytes into{};
  const SteadyTime now = Clock::Real().Now();
  const RingMessage message{1, 4, {PartOf(bytes)}};
  const RingExpectation expected{0, 4, {64}, into.data()};
  EXPECT_TRUE(ring->channel(0).Post(*stream, {&message, 1}, {}, now + 1s).ok());
  EXPECT_TRUE(ring->channel(1).Post(*stream, {}, {&expected, 1}, now + 1s).ok());
  const size_t sizes[] = {64};
  return ring->channel(1).Receive(*stream, 0, 4, sizes, now + patience).status();
}

TEST(GroupRing, AFailedPeerIsNamedWithTheReason) {
  const absl::Status status = ReceiveByGroup({.failing_rank = 1}, 1s);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "rank 1, waiting for rank 0: a peer is gone");
}

TEST(GroupRing, APeerThatAnnouncesAndNeverSendsIsADeadline) {
  const absl::Status status = ReceiveByGroup({.silent_rank = 0}, 30ms);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0"));
}

class OpenRingTest : public ::testing::Test {
 protected:
  std::string Opened(int devices, SeparateDevices::Faults faults, int ranks,
                     RingTransport transport = RingTransport::kAuto) {
    SeparateDevices backend(*processor_, devices, faults);
    const auto ring = OpenRing(transport, backend, ranks, 1s);
    if (ring.ok()) return (*ring)->description();
    EXPECT_EQ(ring.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(ring.status().message());
  }

  const std::unique_ptr<Backend> processor_ = CreateCpuBackend().value();
};

TEST_F(OpenRingTest, TakesTheFirstThatTheMachineHas) {
  EXPECT_EQ(Opened(1, {}, 4), "addresses");
  EXPECT_EQ(Opened(4, {}, 1), "addresses");
  EXPECT_EQ(Opened(2, {}, 4), "copies between devices");
  EXPECT_THAT(Opened(2, {.reach = false}, 2), HasSubstr("NCCL (these devices do not reach"));
  const std::string staged = Opened(2, {.reach = false, .library = false}, 2);
  EXPECT_THAT(staged, HasSubstr("pinned host memory"));
  EXPECT_THAT(staged, HasSubstr("there is no library"));
  EXPECT_THAT(Opened(2, {.reach = false}, 3), HasSubstr("a device for each of 3 ranks"));
}

TEST_F(OpenRingTest, WhatItNeedsIsKnownBefore) {
  for (const bool reach : {false, true}) {
    for (const bool library : {false, true}) {
      for (const int devices : {1, 3}) {
        SeparateDevices backend(*processor_, devices, {.reach = reach, .library = library});
        const RingNeeds needs = NeedsOf(RingTransport::kAuto, devices, 3);
        const auto ring = OpenRing(RingTransport::kAuto, backend, 3, 1s).value();
        EXPECT_EQ(ring->channel(0).copies(), needs.copies) << ring->description();
        EXPECT_LE(ring->channel(0).send_bytes(), needs.send_bytes) << ring->description();
      }
    }
  }
  EXPECT_EQ(NeedsOf(RingTransport::kPeer, 3, 3).send_bytes, 0);
  EXPECT_EQ(NeedsOf(RingTransport::kStaged, 3, 3).send_bytes, 0);
}

TEST_F(OpenRingTest, RefusesWhatWasNamedAndCannotBe) {
  EXPECT_THAT(Opened(1, {}, 2, RingTransport::kPeer), HasSubstr("all 2 ranks are on one"));
  EXPECT_THAT(Opened(2, {.reach = false}, 2, RingTransport::kPeer), HasSubstr("do not reach"));
  EXPECT_THAT(Opened(2, {.library = false}, 2, RingTransport::kNccl), HasSubstr("no library"));
  EXPECT_THAT(Opened(2, {}, 3, RingTransport::kNccl), HasSubstr("lower --ranks"));
  EXPECT_EQ(Opened(1, {}, 1, RingTransport::kNccl), "addresses");
}

}  // namespace
}  // namespace annulus
