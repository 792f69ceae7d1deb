// Prompts and the disk beside each other: how far a prompt gets ahead of what is saved of it, and
// what others do while a request waits for its pages.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "engine/scheduler/save_pace.h"
#include "tests/engine/pages/page_tier_disk_fixture.h"

namespace annulus {
namespace {

using testing::CollectingSink;
using testing::Eventually;
using testing::GatedCalls;
using testing::ManualClock;
using testing::OpenAtEnd;
using testing::SlowToCompute;

// Takes all that is written at once, and keeps none of it.
class BottomlessCalls final : public DiskCalls {
 public:
  ssize_t Write(int /*file*/, const void* /*bytes*/, size_t count, int64_t /*offset*/) override {
    return static_cast<ssize_t>(count);
  }
};

class PageTierPaceTest : public testing::PageTierDiskFixture {
 protected:
  static constexpr int kChunk = 64;

  SeamedOptions Roomy(DiskCalls& calls) const {
    SeamedOptions options{Options(model_, 1)};
    options.seams.disk_calls = &calls;
    return options;
  }
};

// The third chunk waits until the first is saved, and others are served meanwhile.
TEST_F(PageTierPaceTest, APromptStaysWithinTwoChunksOfTheDisk) {
  constexpr int kWritesOfAChunk = 2 * kChunk / kPage;
  GatedCalls calls;
  ManualClock clock;
  calls.WriteBy(clock);
  const auto engine = Make(Roomy(calls), clock);
  const auto end = OpenAtEnd(calls);
  calls.HangWrites();
  const auto sink = Send(*engine, Spec(Prompt(10 * kChunk, 250)));
  ASSERT_TRUE(sink->WaitProgress(2 * kChunk));
  const auto expect_progress = [&](int64_t tokens) {
    EXPECT_TRUE(Answered(*Send(*engine, Spec(Prompt(kPage + 1, 250, 5)))));
    EXPECT_EQ(sink->progress().back().processed, tokens);
  };
  expect_progress(2 * kChunk);
  calls.AllowWrites(kWritesOfAChunk);
  ASSERT_TRUE(sink->WaitProgress(3 * kChunk));
  expect_progress(3 * kChunk);
  calls.Open();
  EXPECT_TRUE(Answered(*sink));
  EXPECT_GT(Metric(*engine, "kv_tier_wait_seconds_total"), 0);
}

TEST_F(PageTierPaceTest, ADiskThatHangsHoldsAPromptNoLongerThanItsShare) {
  GatedCalls calls;
  const auto engine = Make(Roomy(calls));
  const auto end = OpenAtEnd(calls);
  calls.HangWrites();
  const auto sink = Send(*engine, Spec(Prompt(10 * kChunk, 250)));
  ASSERT_TRUE(Answered(*sink));
  const double waited = Metric(*engine, "kv_tier_wait_seconds_total");
  const double prefill = sink->Wait()->timings.prefill;
  EXPECT_GE(waited, SavePace::kMostSeconds);
  // It notices the end of a wait no sooner than the machine lets it.
  EXPECT_LE(waited, SavePace::kMostSeconds + SavePace::kMostShare * prefill + 0.5);
  EXPECT_EQ(Metric(*engine, "kv_tier_up"), 1);
}

// A disk that is off is not waited for.
TEST_F(PageTierPaceTest, ADiskThatFailedHoldsNobody) {
  GatedCalls calls;
  SeamedOptions options = Roomy(calls);
  options.kv_disk_timeout = std::chrono::milliseconds(50);
  const auto engine = Make(options);
  const auto end = OpenAtEnd(calls);
  calls.HangWrites();
  ASSERT_TRUE(Answered(*Send(*engine, Spec(Prompt(10 * kChunk, 250)))));
  ASSERT_TRUE(WaitUntilOff(*engine));
  const double waited = Metric(*engine, "kv_tier_wait_seconds_total");
  ASSERT_TRUE(Answered(*Send(*engine, Spec(Prompt(10 * kChunk, 250, 4)))));
  EXPECT_EQ(Metric(*engine, "kv_tier_wait_seconds_total"), waited);
}

// With a disk that keeps up, serving takes at most 2% longer than without one.
TEST_F(PageTierPaceTest, ADiskThatKeepsUpHoldsNobody) {
  model_ = SlowToCompute(folder_);
  BottomlessCalls calls;
  const auto engine = Make(Roomy(calls));
  const auto sink = Send(*engine, Spec(Prompt(10 * kChunk, 250)));
  ASSERT_TRUE(Answered(*sink));
  EXPECT_LE(Metric(*engine, "kv_tier_wait_seconds_total"), 0.02 * sink->Wait()->timings.prefill);
}

// Window pages that wait for the disk are missing from the sequence's reserve. A sequence that runs
// out of its reserve would end the process.
TEST_F(PageTierPaceTest, WindowsPagesComeBackToTheirSequence) {
  model_ = testing::WithWindows(folder_);
  GatedCalls calls;
  const auto engine = Make(Gated(calls));
  const auto end = OpenAtEnd(calls);
  const int largest = Largest(*engine);
  ASSERT_GT(largest, 10 * kChunk);
  EXPECT_TRUE(Answered(*Send(*engine, Spec(Prompt(largest, 250)))));
  calls.HangWrites();
  EXPECT_TRUE(Answered(*Send(*engine, Spec(Prompt(largest, 250, 4)))));
  calls.Open();
  EXPECT_TRUE(Answered(*Send(*engine, Spec(Prompt(largest, 250, 5)))));
}

// Only the latest chunk's end is of use, so the disk does not keep the windows of all.
TEST_F(PageTierPaceTest, TheDiskKeepsNoWindowsOfEarlierChunks) {
  constexpr int kChunks = 20;
  constexpr size_t kFull = kChunks * kChunk / kPage;
  constexpr size_t kOfWindows = 12;  // of three ends, two pages each in at most two groups
  model_ = testing::WithWindows(folder_);
  const std::vector<int32_t> text = Prompt(kChunks * kChunk + 1, 250);
  {
    const auto engine = Make(Options(model_, 1));
    ASSERT_TRUE(Answered(*Send(*engine, Spec(text))));
    ASSERT_TRUE(WaitForWrites(*engine));
    // Files are removed meanwhile.
    EXPECT_TRUE(Eventually([&] { return Files().size() <= kFull + kOfWindows; }));
  }
  EXPECT_GT(Files().size(), kFull);
  EXPECT_LE(Files().size(), kFull + kOfWindows);
  EXPECT_EQ(Ask(*Make(Options(model_, 1)), Spec(text)).usage.restored_tokens, kChunks * kChunk);
}

// Another request goes on from a chunk's end whose pages are leaving, and keeps them.
TEST_F(PageTierPaceTest, OthersMayUseTheEndOfAChunk) {
  model_ = testing::WithWindows(folder_);
  EngineOptions off = Options(model_, 1);
  off.kv_disk.clear();
  const std::vector<int32_t> text = Prompt(20 * kChunk, 250);
  const Answer expected = Ask(*Make(off), Spec(text));
  GatedCalls calls;
  const auto engine = Make(Roomy(calls));
  const auto end = OpenAtEnd(calls);
  calls.HangWrites();
  const auto sink = Send(*engine, Spec(text));
  ASSERT_TRUE(sink->WaitProgress(2 * kChunk));
  std::vector<int32_t> beginning(text.begin(), text.begin() + kChunk + 3);
  const auto keeper = std::make_shared<CollectingSink>();
  keeper->set_full_after(1);
  ASSERT_TRUE(engine->Submit(Spec(beginning), keeper).ok());
  ASSERT_TRUE(keeper->WaitTokens(1));
  calls.Open();
  ASSERT_TRUE(Answered(*sink));
  EXPECT_EQ(sink->ids(), expected.ids);
  keeper->set_has_room(true);
  ASSERT_TRUE(Answered(*keeper));
  EXPECT_EQ(keeper->Wait()->usage.cached_tokens, kChunk);
}

// What the host's memory has does not survive a kill, so nobody waits for it.
TEST_F(PageTierPaceTest, TheHostsMemoryHoldsNobody) {
  EngineOptions options = Options(model_, 1);
  options.kv_disk.clear();
  options.kv_host_bytes = 64 << 20;
  const auto engine = Make(options);
  ASSERT_TRUE(Answered(*Send(*engine, Spec(Prompt(10 * kChunk, 250)))));
  EXPECT_EQ(Metric(*engine, "kv_tier_wait_seconds_total", "host"), 0);
}

// Streams go on while a disk reads for another request, and that one begins as soon as its last
// page is there: a step checks a page, the next computes what is left of the prompt.
TEST_F(PageTierPaceTest, OthersComputeWhileADiskReads) {
  constexpr int kTokens = 600;
  constexpr int kReads = 2 * ((kTokens - 1) / kPage);
  constexpr size_t kSteps = 30;  // enough for a busy machine
  model_ = SlowToCompute(folder_);
  const std::vector<int32_t> text = Prompt(kTokens, 250);
  Leave({text});
  GatedCalls calls;
  const auto engine = Make(Roomy(calls));
  const auto end = OpenAtEnd(calls);
  RequestSpec stream = Spec(Prompt(20, 250, 4));
  stream.sampling.max_tokens = 1500;
  const auto other = Send(*engine, std::move(stream));
  ASSERT_TRUE(other->WaitTokens(1));
  calls.HangReads();
  const auto sink = Send(*engine, Spec(text));
  ASSERT_TRUE(calls.WaitForHanging());
  calls.AllowReads(kReads - 2);  // all but the last page
  ASSERT_TRUE(other->WaitTokens(other->ids().size() + 10));
  EXPECT_TRUE(sink->progress().empty()) << "a page of it is missing";
  const size_t before = other->ids().size();
  calls.Open();
  ASSERT_TRUE(sink->WaitTokens(1));
  EXPECT_LE(other->ids().size() - before, kSteps);
  EXPECT_FALSE(other->Wait(0).has_value()) << "it was to stream all the time";
  ASSERT_TRUE(Answered(*sink));
  EXPECT_EQ(sink->Wait()->usage.restored_tokens, kTokens / kPage * kPage);
}

}  // namespace
}  // namespace annulus
