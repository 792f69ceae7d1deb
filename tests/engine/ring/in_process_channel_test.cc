#include "engine/ring/in_process_channel.h"

#include <array>
#include <thread>

#include "gtest/gtest.h"

namespace annulus {
namespace {

using namespace std::chrono_literals;

SteadyTime In(std::chrono::milliseconds delay) { return std::chrono::steady_clock::now() + delay; }

RingPart Part(const std::array<std::byte, 4>& data) { return {data.data(), data.size()}; }

TEST(InProcessRing, HandsOverAddressesInOrder) {
  InProcessRing ring(3);
  const std::array<std::byte, 4> first{};
  const std::array<std::byte, 4> second{};
  ASSERT_TRUE(ring.channel(0).Send(2, 7, {Part(first)}).ok());
  ASSERT_TRUE(ring.channel(0).Send(2, 8, {Part(second), Part(first)}).ok());
  const size_t one[] = {4};
  const size_t two[] = {4, 4};
  auto a = ring.channel(2).Receive(0, 7, one, In(1s));
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ((*a)[0].data, first.data());  // nothing is copied
  auto b = ring.channel(2).Receive(0, 8, two, In(1s));
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ((*b)[0].data, second.data());
}

TEST(InProcessRing, AMessageThatIsNotTheExpectedOneIsAnError) {
  InProcessRing ring(2);
  const std::array<std::byte, 4> data{};
  const size_t four[] = {4};
  const size_t five[] = {5};
  ASSERT_TRUE(ring.channel(0).Send(1, 7, {Part(data)}).ok());
  EXPECT_EQ(ring.channel(1).Receive(0, 9, four, In(1s)).status().code(),
            absl::StatusCode::kInternal);
  ASSERT_TRUE(ring.channel(0).Send(1, 7, {Part(data)}).ok());
  EXPECT_EQ(ring.channel(1).Receive(0, 7, five, In(1s)).status().code(),
            absl::StatusCode::kInternal);
}

TEST(InProcessRing, AReceiveEndsAtItsDeadline) {
  InProcessRing ring(2);
  const auto result = ring.channel(1).Receive(0, 1, {}, In(20ms));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(result.status().message().find("rank 0"), absl::string_view::npos);
}

TEST(InProcessRing, AbortWakesAllWaitersWithTheFirstStatus) {
  InProcessRing ring(4);
  std::vector<std::thread> waiters;
  std::array<absl::Status, 3> statuses;
  for (int rank = 1; rank < 4; ++rank) {
    waiters.emplace_back(
        [&, rank] { statuses[rank - 1] = ring.channel(rank).Receive(0, 1, {}, In(60s)).status(); });
  }
  std::this_thread::sleep_for(10ms);
  ring.channel(0).Abort(absl::InternalError("rank 0 broke"));
  ring.channel(0).Abort(absl::InternalError("later"));
  for (std::thread& waiter : waiters) waiter.join();
  for (const absl::Status& status : statuses) EXPECT_EQ(status.message(), "rank 0 broke");
  EXPECT_EQ(ring.channel(2).Send(3, 1, {}).message(), "rank 0 broke");
  ring.Reset();
  EXPECT_TRUE(ring.channel(2).Send(3, 1, {}).ok());
  EXPECT_TRUE(ring.channel(3).Receive(2, 1, {}, In(1s)).ok());
}

}  // namespace
}  // namespace annulus
