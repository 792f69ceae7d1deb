#include "server/traces/span_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "tests/support/eventually.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using testing::Eventually;

// A collector that takes spans, or does not.
class Collector {
 public:
  absl::Status Send(const std::vector<Span>& spans) {
    ++tries;
    hangs.wait(true);
    if (is_away) return absl::UnavailableError("nobody listens");
    taken += spans.size();
    return absl::OkStatus();
  }

  std::atomic<bool> is_away{false}, hangs{false};
  std::atomic<size_t> taken{0};
  std::atomic<int> tries{0};
};

class SpanQueueTest : public ::testing::Test {
 protected:
  std::unique_ptr<SpanQueue> Make() {
    const milliseconds soon(1);
    return std::make_unique<SpanQueue>(
        SpanQueue::Options{.gather = soon, .first_pause = soon, .longest_pause = soon},
        [this](const auto& spans, milliseconds) { return collector_.Send(spans); },
        [this] {
          collector_.hangs = false;
          collector_.hangs.notify_all();
        });
  }

  Collector collector_;
};

TEST_F(SpanQueueTest, SendsWhatComes) {
  const auto queue = Make();
  queue->Add(std::vector<Span>(SpanQueue::kMostAtOnce + 3));
  EXPECT_TRUE(Eventually([&] { return queue->counts().sent == SpanQueue::kMostAtOnce + 3; }));
  EXPECT_EQ(collector_.taken, SpanQueue::kMostAtOnce + 3);
  EXPECT_GE(collector_.tries, 2);
  EXPECT_TRUE(queue->state().ok());
}

TEST_F(SpanQueueTest, KeepsABoundedNumberForACollectorThatIsAway) {
  collector_.is_away = true;
  const auto queue = Make();
  queue->Add(std::vector<Span>(10));
  EXPECT_TRUE(Eventually([&] { return collector_.tries >= 2; }));
  for (int i = 0; i < 100; ++i) queue->Add(std::vector<Span>(100));
  EXPECT_TRUE(
      Eventually([&] { return queue->counts().dropped == 10 + 10'000 - SpanQueue::kMost; }));
  EXPECT_TRUE(absl::IsUnavailable(queue->state()));
  collector_.is_away = false;
  EXPECT_TRUE(Eventually([&] { return queue->counts().sent == SpanQueue::kMost; }));
  EXPECT_TRUE(queue->state().ok());
}

TEST_F(SpanQueueTest, ItsEndWaitsForNoCollector) {
  collector_.hangs = true;
  auto queue = Make();
  queue->Add(std::vector<Span>(1));
  EXPECT_TRUE(Eventually([&] { return collector_.tries == 1; }));
  queue->Add(std::vector<Span>(1));
  queue.reset();  // what came last still went
  EXPECT_EQ(collector_.taken, 2u);
}

}  // namespace
}  // namespace annulus::server
