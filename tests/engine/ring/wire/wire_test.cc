// What every wire promises (wire.h), whatever carries its frames.
#include "engine/ring/wire/wire.h"

#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/memory/align.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/manual_clock.h"
#include "tests/support/wire_rings.h"

namespace annulus {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::WireKind;

constexpr uint64_t kEpoch = 5;

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

// Memory of parts, laid out as RingExpectation says, with bytes that nothing writes between them.
class Parts {
 public:
  explicit Parts(std::vector<size_t> sizes, int seed = 0) : sizes_(std::move(sizes)) {
    size_t room = kMemoryAlignment;
    for (const size_t bytes : sizes_) room += AlignUp(bytes);
    memory_.assign(room, std::byte{0xee});
    auto value = static_cast<unsigned>(seed);
    if (seed == 0) return;
    for (size_t i = 0; i < parts().size(); ++i) {
      const RingPart part = parts()[i];
      for (size_t n = 0; n < part.bytes; ++n) {
        const_cast<std::byte*>(part.data)[n] = static_cast<std::byte>(value = value * 69069 + 1);
      }
    }
  }

  const std::vector<size_t>& sizes() const { return sizes_; }
  std::byte* into() {
    const size_t offset = reinterpret_cast<uintptr_t>(memory_.data()) % kMemoryAlignment;
    return memory_.data() + (kMemoryAlignment - offset) % kMemoryAlignment;
  }
  RingParts parts() {
    std::vector<RingPart> parts;
    const std::byte* at = into();
    for (const size_t bytes : sizes_) {
      parts.push_back({at, bytes});
      at += AlignUp(bytes);
    }
    return parts;
  }
  // All memory from into() on, gaps included.
  std::vector<std::byte> all() {
    const size_t end = memory_.size() - kMemoryAlignment;
    return {into(), into() + end};
  }

 private:
  std::vector<size_t> sizes_;
  std::vector<std::byte> memory_;
};

class WireTest : public ::testing::TestWithParam<WireKind> {
 protected:
  void SetUp() override {
    const absl::Status possible = testing::CanTest(GetParam());
    if (!possible.ok()) GTEST_SKIP() << possible.message();
    for (int rank = 0; rank < 3; ++rank) {
      wires_.push_back(Open(rank, kEpoch, clock_));
      addresses_.push_back(wires_.back()->address());
    }
    for (const auto& wire : wires_) ASSERT_TRUE(wire->Connect(addresses_).ok());
  }

  std::unique_ptr<Wire> Open(int rank, uint64_t epoch, const Clock& clock) const {
    return std::make_unique<Wire>(testing::OpenCarrier(GetParam()).value(), rank, 3, epoch, clock);
  }
  absl::StatusOr<RingParts> Receive(int rank, int peer, uint64_t tag, const Parts& into) {
    return wires_[rank]->Receive(peer, tag, into.sizes(), clock_.Now() + 60s);
  }
  void ExpectArrival(int rank, int peer, uint64_t tag, Parts& into, Parts& sent) {
    const auto came = Receive(rank, peer, tag, into);
    ASSERT_TRUE(came.ok()) << came.status();
    ASSERT_EQ(came->size(), sent.sizes().size());
    if (!came->empty()) {
      EXPECT_EQ((*came)[0].data, into.into());
    }
    EXPECT_EQ(into.all(), sent.all());
  }

  const Clock& clock_ = Clock::Real();
  std::vector<std::unique_ptr<Wire>> wires_;
  std::vector<std::string> addresses_;
};

TEST_P(WireTest, MessagesOfAllSizesArriveInTheirPlaces) {
  const std::vector<std::vector<size_t>> messages = {{},
                                                     {0},
                                                     {1},
                                                     {64},
                                                     {64, 64},
                                                     {100, 3, 5000},
                                                     {kMostEagerBytes - 1},
                                                     {kMostEagerBytes},
                                                     {size_t{3} << 20},
                                                     {65536, 1},
                                                     {70000, 7, 64, 64, 90001},
                                                     std::vector<size_t>(300, 1000)};
  for (const bool early : {false, true}) {
    std::vector<Parts> sent, into;
    for (const auto& sizes : messages) {
      sent.emplace_back(sizes, static_cast<int>(sent.size()) + 1);
      into.emplace_back(sizes);
    }
    const auto send = [&] {
      for (size_t n = 0; n < messages.size(); ++n) {
        ASSERT_TRUE(wires_[0]->Send(2, n, sent[n].parts()).ok());
      }
    };
    if (early) send();
    for (size_t n = 0; n < messages.size(); ++n) {
      ASSERT_TRUE(wires_[2]->Expect(0, n, into[n].sizes(), into[n].into()).ok());
    }
    if (!early) send();
    for (size_t n = 0; n < messages.size(); ++n) {
      SCOPED_TRACE(::testing::Message() << "message " << n << (early ? " early" : ""));
      ExpectArrival(2, 0, n, into[n], sent[n]);
    }
    EXPECT_TRUE(wires_[0]->Flush(clock_.Now() + 60s).ok());
  }
  EXPECT_EQ(wires_[2]->counters().strays, 0);
}

TEST_P(WireTest, AReceiverThatIsLateFindsAllInOrder) {
  constexpr int kMessages = 300;
  std::vector<Parts> sent;
  for (int n = 0; n < kMessages; ++n) {
    sent.push_back(Parts({n % 3 == 0 ? size_t{100000} : size_t{10}}, n + 1));
  }
  for (int n = 0; n < kMessages; ++n) {
    ASSERT_TRUE(wires_[1]->Send(0, n, sent[n].parts()).ok());
  }
  for (int n = 0; n < kMessages; ++n) {
    Parts into(sent[n].sizes());
    ASSERT_TRUE(wires_[0]->Expect(1, n, into.sizes(), into.into()).ok());
    ExpectArrival(0, 1, n, into, sent[n]);
  }
  EXPECT_TRUE(wires_[1]->Flush(clock_.Now() + 60s).ok());
}

TEST_P(WireTest, AnotherTagOrSizeOrCutNamesThePeer) {
  struct Wrong {
    uint64_t tag;
    std::vector<size_t> sizes;
  };
  for (const Wrong& wrong : {Wrong{8, {64, 32}}, Wrong{7, {64, 33}}, Wrong{7, {32, 64}},
                             Wrong{7, {100000}}, Wrong{7, {96}}}) {
    const auto wires = std::move(wires_);
    wires_.clear();
    addresses_.clear();
    SetUp();
    Parts sent(wrong.sizes, 1), into({64, 32});
    ASSERT_TRUE(wires_[1]->Expect(0, 7, into.sizes(), into.into()).ok());
    ASSERT_TRUE(wires_[0]->Send(1, wrong.tag, sent.parts()).ok());
    const absl::Status status = Receive(1, 0, 7, into).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(TextOf(status),
                AllOf(HasSubstr("from rank 0"), HasSubstr("expected was message 7")));
    // The epoch has ended: nothing goes on as if this had not been.
    EXPECT_TRUE(wires_[0]->Flush(clock_.Now() + 60s).ok());
    EXPECT_EQ(wires_[1]->Send(2, 1, sent.parts()), status);
    EXPECT_EQ(wires_[1]->Expect(2, 1, into.sizes(), into.into()), status);
    EXPECT_EQ(wires_[1]->Flush(clock_.Now()), status);
  }
}

TEST_P(WireTest, WhatHasNoPlaceIsNotAwaited) {
  Parts into({64});
  EXPECT_EQ(Receive(0, 1, 3, into).status().code(), absl::StatusCode::kInternal);
  ASSERT_TRUE(wires_[0]->Expect(1, 3, into.sizes(), into.into()).ok());
  EXPECT_EQ(Receive(0, 1, 4, into).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Receive(0, 1, 3, Parts({65})).status().code(), absl::StatusCode::kInternal);
}

TEST_P(WireTest, AnAbortEndsEveryWaitAtOnce) {
  testing::ManualClock clock;
  const auto wire = Open(0, kEpoch, clock);
  Parts into({64});
  ASSERT_TRUE(wire->Expect(1, 1, into.sizes(), into.into()).ok());
  ASSERT_TRUE(wire->Expect(2, 1, into.sizes(), into.into()).ok());
  std::vector<absl::Status> statuses(2);
  std::vector<std::thread> waiters;
  for (const int peer : {1, 2}) {
    waiters.emplace_back([&, peer] {
      statuses[peer - 1] = wire->Receive(peer, 1, into.sizes(), clock.Now() + 1h).status();
    });
  }
  ASSERT_TRUE(clock.WaitForWaiters(2));
  wire->Abort(absl::CancelledError("epoch 5 ends"));
  for (std::thread& waiter : waiters) waiter.join();
  wire->Abort(absl::InternalError("later"));
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status, absl::CancelledError("epoch 5 ends"));
  }
  EXPECT_EQ(wire->Flush(clock.Now()), absl::CancelledError("epoch 5 ends"));
}

TEST_P(WireTest, ARankOfAnotherEpochChangesNothing) {
  const auto before = Open(1, kEpoch - 1, clock_), after = Open(1, kEpoch + 1, clock_);
  for (const auto* other : {&before, &after}) {
    std::vector<std::string> addresses = addresses_;
    addresses[1] = (*other)->address();
    ASSERT_TRUE((*other)->Connect(addresses).ok());
  }
  Parts old({64}, 1), large({100000}, 2), next({64}, 3), own({64}, 4), into({64});
  ASSERT_TRUE(wires_[0]->Expect(1, 7, into.sizes(), into.into()).ok());
  ASSERT_TRUE(before->Send(0, 7, old.parts()).ok());
  ASSERT_TRUE(before->Send(0, 7, large.parts()).ok());
  ASSERT_TRUE(after->Send(0, 7, next.parts()).ok());
  EXPECT_TRUE(testing::Eventually([&] {
    const WireCounters counters = wires_[0]->counters();
    return counters.old_epochs == 2 && counters.strays == 1;
  }));
  ASSERT_TRUE(wires_[1]->Send(0, 7, own.parts()).ok());
  ExpectArrival(0, 1, 7, into, own);
  // Nobody waits for frames that were dropped.
  for (const auto* sender : {&before, &after, &std::as_const(wires_[1])}) {
    EXPECT_TRUE((*sender)->Flush(clock_.Now() + 60s).ok());
  }
}

TEST_P(WireTest, APeerThatRunsAwayIsStopped) {
  Parts part({8}, 1);
  for (size_t n = 0; n <= Wire::kMostEarlyFrames; ++n) {
    ASSERT_TRUE(wires_[2]->Send(0, n, part.parts()).ok());
  }
  EXPECT_TRUE(testing::Eventually(
      [&] { return absl::IsResourceExhausted(wires_[0]->Flush(clock_.Now())); }));
  EXPECT_THAT(TextOf(wires_[0]->Flush(clock_.Now())), HasSubstr("from rank 2"));
  EXPECT_TRUE(wires_[2]->Flush(clock_.Now() + 60s).ok());
}

// Of a ring that forms, one process may end before another has connected: as soon as it has its
// address, or once it has sent something.
TEST_P(WireTest, ARankThatLeavesBeforeOthersConnectIsLost) {
  for (const bool sends : {false, true}) {
    const auto open = [&](int rank) {
      return std::make_unique<Wire>(testing::OpenCarrier(GetParam()).value(), rank, 2, kEpoch,
                                    clock_);
    };
    const auto late = open(0);
    auto early = open(1);
    const std::vector<std::string> addresses = {late->address(), early->address()};
    Parts sent({kMostEagerBytes}, 1), into({64});
    if (sends) {
      ASSERT_TRUE(early->Connect(addresses).ok());
      ASSERT_TRUE(early->Send(0, 7, sent.parts()).ok());
    }
    early.reset();
    EXPECT_TRUE(late->Connect(addresses).ok());
    absl::Status status = late->Expect(1, 8, into.sizes(), into.into());
    if (status.ok()) status = late->Receive(1, 8, into.sizes(), clock_.Now() + 60s).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(TextOf(status), HasSubstr("rank 0 has lost rank 1: "));
  }
}

TEST_P(WireTest, ARingNeedsAnAddressOfEachRank) {
  const auto wire = Open(0, kEpoch, clock_);
  EXPECT_EQ(wire->Connect(std::span(addresses_).first(2)).code(),
            absl::StatusCode::kInvalidArgument);
  std::vector<std::string> addresses = addresses_;
  addresses[2] = "10.0.0.1:7000";
  const absl::Status status = wire->Connect(addresses);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(TextOf(status), HasSubstr("rank 2"));
}

INSTANTIATE_TEST_SUITE_P(All, WireTest, ::testing::Values(WireKind::kMemory, WireKind::kUcx),
                         [](const auto& info) {
                           return info.param == WireKind::kUcx ? "Ucx" : "Memory";
                         });

}  // namespace
}  // namespace annulus
