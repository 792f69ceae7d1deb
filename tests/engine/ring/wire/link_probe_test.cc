#include "engine/ring/wire/link_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/hooked_carrier.h"
#include "tests/support/manual_clock.h"
#include "tests/support/wire_rings.h"

namespace annulus {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
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
  std::unique_ptr<LinkProbe> probe_;  // outlives the ring, whose threads have ended
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

// Three ranks here, of which one does something whenever it is to send.
class HookedRing {
 public:
  HookedRing(int hooked, const std::function<void()>& on_send, const Clock& clock) {
    WireRingSetup setup;
    setup.ranks = 3;
    setup.local = all_;
    setup.open = [opened = 0, hooked, on_send]() mutable -> std::unique_ptr<Carrier> {
      if (opened++ % 3 == hooked) return std::make_unique<testing::HookedCarrier>(on_send);
      return std::make_unique<testing::MemoryCarrier>();
    };
    setup.exchange = [](uint64_t, std::vector<std::string> own) { return own; };
    ring_ = WireRing::Create(std::move(setup), clock).value();
    probe_ = std::make_unique<LinkProbe>(*ring_, all_);
  }
  absl::Status Time(SteadyTime deadline) { return probe_->Time(all_, 1000, deadline).status(); }
  LinkProbe& probe() { return *probe_; }

 private:
  const std::vector<int> all_ = {0, 1, 2};
  std::unique_ptr<LinkProbe> probe_;  // outlives the ring
  std::unique_ptr<WireRing> ring_;
};

TEST(LinkProbe, WithoutMemoryFailsAndEndsNobody) {
  for (const int poor : {0, 1, 2}) {
    SCOPED_TRACE(poor);
    HookedRing ring(
        poor, [] { throw std::bad_alloc(); }, Clock::Real());
    const absl::Status timed = ring.Time(std::chrono::steady_clock::now() + std::chrono::hours(1));
    EXPECT_EQ(timed.code(), absl::StatusCode::kResourceExhausted) << timed;
    EXPECT_EQ(ring.probe().stuck(), absl::OkStatus());
  }
}

// The others wait for it until the deadline.
TEST(LinkProbe, OfACarrierThatHangsReturns) {
  testing::ManualClock clock;
  testing::Door door;
  HookedRing ring(
      0, [&door] { door.Pass(); }, clock);
  std::atomic<bool> returned{false};
  absl::Status timed;
  std::thread caller([&] {
    timed = ring.Time(clock.Now() + 30s);
    returned = true;
  });
  door.WaitForSomebody();
  EXPECT_TRUE(clock.AdvanceUntil([&] { return returned.load(); }, 1s));
  door.Open();
  caller.join();
  EXPECT_EQ(timed.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(timed.message()), HasSubstr("the wire of rank 0 hangs in a probe"));
  EXPECT_EQ(ring.probe().stuck(), timed);
  EXPECT_EQ(ring.Time(clock.Now() + 30s), timed) << "the wire may still be in use";
  ring.probe().Join();
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
