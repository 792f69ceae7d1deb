// Whatever the disk does, no request waits for it longer than computing takes, and no page of
// memory stays out of use.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "engine/tiers/disk_folder.h"
#include "engine/tiers/disk_store.h"
#include "tests/engine/pages/page_tier_disk_fixture.h"

namespace annulus {
namespace {

using std::chrono::milliseconds;
using testing::CollectingSink;
using testing::Eventually;
using testing::GatedCalls;
using testing::ManualClock;
using testing::OpenAtEnd;
using testing::SlowToCompute;
namespace fs = std::filesystem;

class PageTierDiskTest : public testing::PageTierDiskFixture {};

TEST_F(PageTierDiskTest, AReadThatHangsKeepsNeitherPagesNorTheRequest) {
  const std::vector<int32_t> prompt = Prompt(600, 250);
  Leave({prompt});
  GatedCalls calls;
  SeamedOptions options = Gated(calls);
  options.kv_disk_timeout = milliseconds(300);
  ManualClock clock;
  const auto engine = Make(options, clock);
  const auto end = OpenAtEnd(calls);
  calls.HangReads();
  const auto sink = Send(*engine, Spec(prompt));
  ASSERT_TRUE(calls.WaitForHanging());
  EXPECT_TRUE(clock.AdvanceUntil([&] { return sink->done_calls() > 0; }));
  EXPECT_TRUE(Answered(*sink));
  EXPECT_EQ(Metric(*engine, "kv_tier_up"), 0);
  EXPECT_TRUE(Answered(*Send(*engine, Spec(Prompt(Largest(*engine), 250, 9)))))
      << "the pages that were to be filled are not free";
  EXPECT_FALSE(engine->Load().tiers.at(0).off.empty());
}

TEST_F(PageTierDiskTest, ARequestThatEndsGivesItsPagesBackWhileTheDiskHangs) {
  const std::vector<int32_t> prompt = Prompt(600, 250);
  Leave({prompt});
  GatedCalls calls;
  const auto engine = Make(Gated(calls));
  const auto end = OpenAtEnd(calls);
  calls.HangReads();
  auto sink = std::make_shared<CollectingSink>();
  const auto id = engine->Submit(Spec(prompt), sink);
  ASSERT_TRUE(id.ok() && calls.WaitForHanging());
  engine->Cancel(*id);
  ASSERT_TRUE(sink->Wait().has_value());
  EXPECT_TRUE(Answered(*Send(*engine, Spec(Prompt(Largest(*engine), 250, 9)))));
  EXPECT_EQ(Metric(*engine, "kv_tier_up"), 1);
}

// Never still, and never done: neither the text that is read nor a short one behind it waits.
TEST_F(PageTierDiskTest, ADiskThatTricklesHoldsNobodyLongerThanComputing) {
  const std::vector<int32_t> text = Prompt(900, 250);
  const std::vector<int32_t> small = Prompt(90, 250, 4);
  Leave({text, small});
  GatedCalls calls;
  ManualClock clock;
  SeamedOptions options = Gated(calls);
  options.kv_disk_timeout = std::chrono::hours(1);  // it trickles, whatever the machine makes of it
  const auto engine = Make(options, clock);
  const auto end = OpenAtEnd(calls);
  calls.HangReads();
  const auto first = Send(*engine, Spec(text));
  ASSERT_TRUE(calls.WaitForHanging());
  const auto second = Send(*engine, Spec(small));
  int reads = 0;
  EXPECT_TRUE(clock.AdvanceUntil([&] {
    if (++reads < 9) calls.AllowReads(1);  // of 112 that the text takes, and 10 that the small one
    return first->done_calls() > 0 && second->done_calls() > 0;
  }));
  EXPECT_TRUE(Answered(*first) && Answered(*second));
  EXPECT_EQ(Metric(*engine, "kv_tier_up"), 1);
  for (const auto& each : {first, second}) {
    const std::optional<CacheMiss> miss = each->Wait()->usage.cache_miss;
    ASSERT_TRUE(miss.has_value());
    EXPECT_EQ(miss->reason, CacheMiss::Reason::kDiskSlower) << "the reply says why it was computed";
  }
}

TEST_F(PageTierDiskTest, PagesThatWaitToBeWrittenMakeRoom) {
  GatedCalls calls;
  const auto engine = Make(Gated(calls));
  const auto end = OpenAtEnd(calls);
  calls.HangWrites();
  EXPECT_TRUE(Answered(*Send(*engine, Spec(Prompt(600, 250)))));
  ASSERT_TRUE(calls.WaitForHanging());
  EXPECT_TRUE(Answered(*Send(*engine, Spec(Prompt(Largest(*engine), 250, 9)))));
  EXPECT_EQ(Metric(*engine, "kv_tier_up"), 1);
}

// By the rates that were measured: nothing of it is read.
TEST_F(PageTierDiskTest, WhatIsReadMoreSlowlyThanComputedIsComputed) {
  const std::vector<int32_t> text = Prompt(600, 250);
  const std::vector<int32_t> small = Prompt(90, 250, 4);
  Leave({text, small});
  GatedCalls calls;
  SeamedOptions options = Gated(calls);
  options.kv_memory_bytes = 64 << 20;
  const auto engine = Make(options);
  const auto end = OpenAtEnd(calls);
  const Answer other = Ask(*engine, Spec(Prompt(300, 250, 9)));  // its steps are measured
  EXPECT_EQ(other.usage.cached_tokens, 0);
  calls.SlowReads(milliseconds(40));
  EXPECT_EQ(Ask(*engine, Spec(small)).usage.restored_tokens, 80) << "nobody knew how long it takes";
  const int64_t reads = calls.answered_reads();
  const Answer answer = Ask(*engine, Spec(text));
  EXPECT_EQ(calls.answered_reads(), reads);
  EXPECT_EQ(answer.usage.restored_tokens, 0);
  EXPECT_EQ(answer.usage.cached_tokens, 0);
  ASSERT_TRUE(answer.usage.cache_miss.has_value());
  EXPECT_EQ(answer.usage.cache_miss->reason, CacheMiss::Reason::kDiskSlower);
  EXPECT_EQ(answer.usage.cache_miss->position, 0);
  options.kv_disk.clear();
  EXPECT_EQ(answer, Ask(*Make(options), Spec(text)));
}

// All pages have come, and for a second there is no room to compute one of them again.
TEST_F(PageTierDiskTest, WhatCannotBeCheckedInTimeIsComputed) {
  const std::vector<int32_t> text = Prompt(600, 250);
  Leave({text});
  GatedCalls calls;
  const auto engine = Make(Gated(calls));
  const auto end = OpenAtEnd(calls);
  calls.HangReads();
  const auto sink = Send(*engine, Spec(text));
  ASSERT_TRUE(calls.WaitForHanging());
  // Takes all pages but those that are read, and keeps them while nobody reads its answer.
  const auto keeper = std::make_shared<CollectingSink>();
  keeper->set_full_after(1);
  const int pages_of_text = 592 / kPage;
  const int largest = Largest(*engine);
  const int rest = largest - pages_of_text * kPage;
  ASSERT_TRUE(engine->Submit(Spec(Prompt(rest, 250, 9)), keeper).ok());
  ASSERT_TRUE(keeper->WaitTokens(1));
  calls.Open();
  // Until the pages that have come are given up. Those of the other's prompt are only cached.
  const double half = 0.5 * pages_of_text * kPage / (largest + 12);
  EXPECT_TRUE(Eventually([&] { return Metric(*engine, "kv_cache_usage_perc") < half; }));
  keeper->set_has_room(true);
  EXPECT_TRUE(Answered(*keeper) && Answered(*sink));
  const Usage usage = sink->Wait()->usage;
  EXPECT_EQ(usage.restored_tokens, 0);
  ASSERT_TRUE(usage.cache_miss.has_value());
  EXPECT_EQ(usage.cache_miss->reason, CacheMiss::Reason::kDiskSlower);
  EXPECT_EQ(Metric(*engine, "kv_tier_checks_total"), 0);
}

// Another request says of a page that waits to be written that it holds a document: so does the
// file, and the document's deletion finds it.
TEST_F(PageTierDiskTest, APageThatWaitsLearnsItsDocument) {
  GatedCalls calls;
  SeamedOptions options = Gated(calls);
  options.kv_memory_bytes = 64 << 20;
  const auto engine = Make(options);
  const absl::Cleanup open = [&] { calls.Open(); };  // before the engine ends
  calls.HangWrites();
  RequestSpec spec = Spec(Prompt(320, 250));
  Ask(*engine, spec);
  ASSERT_TRUE(calls.WaitForHanging());
  spec.documents = {{0, "text"}};
  Ask(*engine, spec);
  calls.Open();
  ASSERT_TRUE(WaitForPages(*engine, 20));
  const auto nameless = [&] {
    const std::vector<fs::path> files = Files();
    return std::count_if(files.begin(), files.end(), [](const fs::path& file) {
      return EntryName::Parse(file.filename().string())->documents.empty();
    });
  };
  EXPECT_TRUE(Eventually([&] { return nameless() == 0; }));
  EXPECT_EQ(Files().size(), 20u);
  EXPECT_TRUE(engine->ForgetDocument(TenantId(), "text", CancelFlag::Never()).ok());
  EXPECT_EQ(Files().size(), 0u);
}

TEST_F(PageTierDiskTest, AWriteThatHangsIsNoticed) {
  GatedCalls calls;
  ManualClock clock;
  const auto engine = Make(Gated(calls), clock);
  const auto end = OpenAtEnd(calls);
  calls.HangWrites();
  const auto sink = Send(*engine, Spec(Prompt(600, 250)));
  ASSERT_TRUE(calls.WaitForHanging());
  const SteadyTime hangs = clock.Now();
  EXPECT_TRUE(clock.AdvanceUntil([&] { return Metric(*engine, "kv_tier_up") == 0; },
                                 std::chrono::seconds(1)));
  EXPECT_GE(clock.Now() - hangs, EngineOptions().kv_disk_timeout);
  EXPECT_TRUE(Answered(*sink));
}

TEST_F(PageTierDiskTest, TheSameBeginningIsReadOnce) {
  model_ = SlowToCompute(folder_);
  const std::vector<int32_t> before = Prompt(200, 250, 8);
  const std::vector<int32_t> text = Prompt(600, 250);
  Leave({before, text});
  std::vector<int32_t> other = text;
  other.back() = 77;
  GatedCalls calls;
  SeamedOptions options = Gated(calls);
  options.kv_memory_bytes = 64 << 20;
  const auto engine = Make(options);
  const auto end = OpenAtEnd(calls);
  EXPECT_EQ(Ask(*engine, Spec(before)).usage.restored_tokens, 192);  // its rates are known now
  calls.HangReads();
  const auto first = Send(*engine, Spec(text));
  ASSERT_TRUE(calls.WaitForHanging());
  const auto second = Send(*engine, Spec(other));
  ASSERT_TRUE(Eventually([&] { return engine->Load().waiting == 2; }));  // it was looked at
  calls.Open();
  for (const auto& sink : {first, second}) {
    ASSERT_TRUE(Answered(*sink));
    EXPECT_EQ(sink->Wait()->usage.restored_tokens, 592);
  }
  EXPECT_EQ(Metric(*engine, "kv_tier_restores_total"), 2);
  EXPECT_EQ(Metric(*engine, "kv_tier_hits_total"), 192 + 592);
}

// What was restored goes as it came: the end of a text before its beginning.
TEST_F(PageTierDiskTest, ARestoredTextKeepsItsBeginningInASmallerFolder) {
  const std::vector<int32_t> text = Prompt(600, 250);
  Leave({text});
  EXPECT_EQ(Ask(*Make(Options(model_, 1)), Spec(text)).usage.restored_tokens, 592);
  int64_t bytes = 0;
  for (const auto& file : Files()) bytes += (fs::file_size(file) + 4095) / 4096 * 4096;
  ASSERT_TRUE(DiskStore::Open(disk(), bytes / 2).ok());
  const Answer answer = Ask(*Make(Options(model_, 1)), Spec(text));
  EXPECT_GE(answer.usage.restored_tokens, 592 / 2 - 2 * kPage);
}

}  // namespace
}  // namespace annulus
