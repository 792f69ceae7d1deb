#include "engine/ring/wire/link_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/wire_rings.h"

namespace annulus {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::WireKind;

class LinkProbeTest : public ::testing::TestWithParam<WireKind> {
 protected:
  void SetUp() override {
    const absl::Status possible = testing::CanTest(GetParam());
    if (!possible.ok()) GTEST_SKIP() << possible.message();
    ring_ = testing::OpenWireRing(GetParam(), 3).value();
  }
  // Of these ranks of the ring.
  LinkProbe& Probe(std::vector<int> local) {
    probe_ = std::make_unique<LinkProbe>(*ring_, std::move(local));
    return *probe_;
  }
  static SteadyTime Soon(std::chrono::milliseconds time = 60s) {
    return std::chrono::steady_clock::now() + time;
  }

  const std::vector<int> all_ = {0, 1, 2};
  std::unique_ptr<LinkProbe> probe_;  // outlives the ring
  std::unique_ptr<WireRing> ring_;
};

TEST_P(LinkProbeTest, TimesMessagesOfAnySize) {
  LinkProbe& probe = Probe(all_);
  for (const size_t bytes : {size_t{1}, size_t{64}, size_t{100'001}, LinkProbe::kMostBytes}) {
    const auto seconds = probe.Time(all_, bytes, Soon());
    ASSERT_TRUE(seconds.ok()) << seconds.status();
    EXPECT_GT(*seconds, 0) << bytes;
  }
  ASSERT_EQ(ring_->Reset(), absl::OkStatus());
  EXPECT_TRUE(probe.Time(all_, 64, Soon()).ok());
}

TEST_P(LinkProbeTest, LeavesOutRanksThatHaveNoHost) {
  const std::vector<int> hosted = {0, 2};
  EXPECT_TRUE(Probe(hosted).Time(hosted, 1000, Soon()).ok());
}

TEST_P(LinkProbeTest, EndsAtTheDeadlineIfARankStaysAway) {
  const auto seconds = Probe({0, 1}).Time(all_, 1000, Soon(50ms));
  EXPECT_EQ(seconds.status().code(), absl::StatusCode::kDeadlineExceeded) << seconds.status();
}

TEST_P(LinkProbeTest, EndsWithTheEpoch) {
  const absl::Status why = absl::UnavailableError("a step has failed");
  ring_->channel(1).Abort(why);
  EXPECT_EQ(Probe(all_).Time(all_, 1000, Soon()).status(), why);
}

TEST_P(LinkProbeTest, RefusesSizes) {
  for (const size_t bytes : {size_t{0}, LinkProbe::kMostBytes + 1}) {
    EXPECT_EQ(Probe(all_).Time(all_, bytes, Soon()).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// A carrier that finds no memory when it is to send something.
class CarrierWithoutMemory final : public Carrier {
 public:
  void Start(CarrierSink& sink) override { carrier_.Start(sink); }
  const std::string& address() const override { return carrier_.address(); }
  absl::Status Connect(int own, std::span<const std::string> addresses) override {
    return carrier_.Connect(own, addresses);
  }
  void Send(int, const FrameHeaderBytes&, const RingParts&, Done) override {
    throw std::bad_alloc();
  }
  void Receive(uint64_t frame, std::vector<RingPlace> places, Done done) override {
    carrier_.Receive(frame, std::move(places), std::move(done));
  }
  void Drop(uint64_t frame) override { carrier_.Drop(frame); }

 private:
  testing::MemoryCarrier carrier_;
};

// Whichever rank it is of: the first one is timed on the caller's thread, the others are not.
TEST(LinkProbe, WithoutMemoryFailsAndEndsNobody) {
  const std::vector<int> all = {0, 1, 2};
  for (const int poor : all) {
    SCOPED_TRACE(poor);
    int opened = 0;
    WireRingSetup setup;
    setup.ranks = 3;
    setup.local = all;
    setup.open = [&]() -> std::unique_ptr<Carrier> {
      if (opened++ % 3 == poor) return std::make_unique<CarrierWithoutMemory>();
      return std::make_unique<testing::MemoryCarrier>();
    };
    setup.exchange = [](uint64_t, std::vector<std::string> own) { return own; };
    std::unique_ptr<LinkProbe> probe;  // outlives the ring
    const auto ring = WireRing::Create(std::move(setup), Clock::Real()).value();
    probe = std::make_unique<LinkProbe>(*ring, all);
    const auto seconds =
        probe->Time(all, 1000, std::chrono::steady_clock::now() + std::chrono::hours(1));
    EXPECT_EQ(seconds.status().code(), absl::StatusCode::kResourceExhausted) << seconds.status();
  }
}

TEST(RanksWithAddresses, AreThoseThatHaveAHost) {
  EXPECT_THAT(RanksWithAddresses(std::vector<std::string>{"a", "", "b", ""}), ElementsAre(0, 2));
}

INSTANTIATE_TEST_SUITE_P(Wires, LinkProbeTest, ::testing::Values(WireKind::kMemory, WireKind::kUcx),
                         [](const auto& kind) {
                           return kind.param == WireKind::kUcx ? "Ucx" : "Memory";
                         });

}  // namespace
}  // namespace annulus
