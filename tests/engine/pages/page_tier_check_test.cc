// Pages on disk whose checksums are right and whose bytes are not what computing gives.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tests/engine/pages/page_tier_fixture.h"
#include "tests/support/false_pages.h"

namespace annulus {
namespace {

using Reason = CacheMiss::Reason;

class PageTierCheckTest : public testing::PageTierFixture {
 protected:
  static constexpr int kTokens = 330;
  static constexpr int32_t kKept = kTokens / kPage * kPage;

  EngineOptions Options(KvVerify verify, int ranks = 1) const {
    EngineOptions options = PageTierFixture::Options(model_, ranks);
    options.kv_verify = verify;
    return options;
  }

  // The first request of an engine, with that page of all that come back as the sample.
  RequestSpec Sampling(int32_t page) const {
    return Checking(Spec(prompt_), page, kKept / kPage, 1);
  }

  // What an engine leaves on disk, and how it answers.
  Answer Leave() { return Leave(Spec(prompt_)); }
  Answer Leave(const RequestSpec& spec) {
    const auto engine = Make(Options(KvVerify::kSample));
    const Answer expected = Ask(*engine, spec);
    EXPECT_TRUE(WaitForPages(*engine, pages_) && WaitForWrites(*engine));
    return expected;
  }

  int Falsify(int32_t begin, int32_t end,
              void (*falsify)(std::span<std::byte> page) = testing::FalsifyPage) const {
    return testing::FalsifyPages(disk(), begin, end, falsify);
  }

  // Whatever is wrong on disk from `begin` up to `end`, the answer is not.
  void ExpectFound(int32_t begin, int32_t end, int32_t page = kKept / kPage - 1,
                   void (*falsify)(std::span<std::byte> page) = testing::FalsifyPage) {
    const RequestSpec spec = Sampling(page);
    const Answer expected = Leave(spec);
    ASSERT_GT(Falsify(begin, end, falsify), 0);
    for (const int ranks : {1, 2}) {
      const auto engine = Make(Options(KvVerify::kSample, ranks));
      const Answer answer = Ask(*engine, spec);
      EXPECT_EQ(answer, expected) << ranks << " ranks";
      EXPECT_EQ(answer.usage.checked_position, page * kPage);
      EXPECT_EQ(Metric(*engine, "kv_tier_checks_total"), 1);
      if (ranks == 1) {
        EXPECT_EQ(answer.usage.restored_tokens, 0);
        ASSERT_TRUE(answer.usage.cache_miss.has_value());
        EXPECT_EQ(answer.usage.cache_miss->reason, Reason::kDiskRefused);
        EXPECT_EQ(answer.usage.cache_miss->position, 0);
        EXPECT_EQ(Metric(*engine, "kv_tier_mismatches_total"), 1);
        EXPECT_EQ(engine->Load().tiers.at(0).mismatches, 1);
        EXPECT_EQ(Metric(*engine, "kv_tier_rejects_total"), 0);
        // What was computed takes the place of what was wrong.
        ASSERT_TRUE(WaitForPages(*engine, pages_) && WaitForWrites(*engine));
      } else {
        EXPECT_EQ(answer.usage.restored_tokens, kKept);
        EXPECT_EQ(answer.usage.cache_miss, std::nullopt);
        EXPECT_EQ(Metric(*engine, "kv_tier_mismatches_total"), 0);
      }
      EXPECT_EQ(Metric(*engine, "kv_tier_up"), 1);
    }
  }

  std::string model_ = testing::WithoutWindows(folder_);
  int pages_ = kTokens / kPage;
  const std::vector<int32_t> prompt_ = Prompt(kTokens, 300);
};

TEST_F(PageTierCheckTest, TheLastPageIsComputedAgain) { ExpectFound(kKept - kPage, kKept); }

// The last page follows from it.
TEST_F(PageTierCheckTest, APageFarBeforeTheLastIsFoundToo) { ExpectFound(2 * kPage, 3 * kPage); }

// The last layer of a page shows in that page alone, which may be any.
TEST_F(PageTierCheckTest, AnyPageMayBeTheOneThatIsComputed) {
  ExpectFound(3 * kPage, 4 * kPage, 3, testing::FalsifyLastLayer);
  std::set<int32_t> pages;
  int last = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const int32_t page = PageChecker::SampledPage(seed, 1, 20);
    EXPECT_TRUE(page >= 0 && page < 20);
    EXPECT_EQ(PageChecker::SampledPage(seed, 1, 20), page);
    EXPECT_EQ(PageChecker::SampledPage(seed, 1, 1), 0);
    last += page == 19 ? 1 : 0;
    pages.insert(page);
  }
  EXPECT_EQ(pages.size(), 20u);
  EXPECT_GT(last, 160);
  EXPECT_LT(last, 260);
}

TEST_F(PageTierCheckTest, WithWindowsToo) {
  model_ = testing::RandomModel(folder_, "golden/gpt_oss/config.json", [](nlohmann::json& config) {
    config.erase("quantization_config");
  });
  pages_ += 2;
  ExpectFound(kKept - kPage, kKept);
}

// So the other tests change what matters.
TEST_F(PageTierCheckTest, WithoutChecksTheAnswerIsWrong) {
  const Answer expected = Leave();
  Falsify(2 * kPage, kKept);
  const auto engine = Make(Options(KvVerify::kOff));
  const Answer answer = Ask(*engine, Spec(prompt_));
  EXPECT_FALSE(answer == expected);
  EXPECT_EQ(answer.usage.restored_tokens, kKept);
  EXPECT_EQ(Metric(*engine, "kv_tier_checks_total"), 0);
}

TEST_F(PageTierCheckTest, AllPagesAreComparedAndWhatDiffersIsWrittenAnew) {
  const Answer expected = Leave();
  const int changed = Falsify(2 * kPage, 5 * kPage);
  EXPECT_EQ(changed, 3);
  {
    const auto engine = Make(Options(KvVerify::kAll, 2));
    const Answer answer = Ask(*engine, Spec(prompt_));
    EXPECT_EQ(answer, expected);
    EXPECT_EQ(answer.usage.restored_tokens, 0);
    EXPECT_TRUE(
        testing::Eventually([&] { return Metric(*engine, "kv_tier_checks_total") >= pages_; }));
    EXPECT_EQ(Metric(*engine, "kv_tier_checks_total"), pages_);
    EXPECT_EQ(Metric(*engine, "kv_tier_mismatches_total"), changed);
    EXPECT_EQ(Metric(*engine, "kv_tier_pages"), pages_);
  }
  const auto engine = Make(Options(KvVerify::kOff));
  const Answer answer = Ask(*engine, Spec(prompt_));
  EXPECT_EQ(answer, expected);
  EXPECT_EQ(answer.usage.restored_tokens, kKept);
}

// Checking takes no more room than the request that waits for it.
TEST_F(PageTierCheckTest, ARequestThatFillsAllMemoryIsCheckedToo) {
  EngineOptions tight = Options(KvVerify::kSample);
  tight.kv_memory_bytes = 1 << 20;
  const auto of = [&](int tokens) {
    RequestSpec spec = Spec(Prompt(tokens, 300));
    spec.sampling.max_tokens = 1;
    return spec;
  };
  int pages = 1;
  {
    const auto engine = Make(tight);
    while (engine->Validate(of((pages + 1) * kPage + 1)).ok()) ++pages;
  }
  Answer expected;
  {
    const auto engine = Make(Options(KvVerify::kSample));
    expected = Ask(*engine, of(pages * kPage + 1));
    ASSERT_TRUE(WaitForPages(*engine, pages));
  }
  const auto engine = Make(tight);
  const Answer answer = Ask(*engine, of(pages * kPage + 1));
  EXPECT_EQ(answer, expected);
  EXPECT_EQ(answer.usage.restored_tokens, pages * kPage);
  EXPECT_EQ(Metric(*engine, "kv_tier_checks_total"), 1);
}

// One request is asked, so no more than one runs or waits, whatever computes its check.
TEST_F(PageTierCheckTest, AChecksRunIsNobodysRequest) {
  model_ = testing::SlowToCompute(folder_);
  Leave();
  const auto engine = Make(Options(KvVerify::kSample));
  auto sink = std::make_shared<testing::CollectingSink>();
  ASSERT_TRUE(engine->Submit(Spec(prompt_), sink).ok());
  while (!sink->Wait(0.001).has_value()) {
    const EngineLoad load = engine->Load();
    ASSERT_LE(load.running + load.waiting, 1);
  }
  EXPECT_EQ(Metric(*engine, "kv_tier_checks_total"), 1);
}

// Its reader is behind. Otherwise the check would wait in vain, and what was read would be dropped.
TEST_F(PageTierCheckTest, AParkedStreamLeavesItsPlaceToACheck) {
  const Answer expected = Leave();
  EngineOptions options = Options(KvVerify::kSample);
  options.max_running = 1;
  const auto engine = Make(options);
  const auto parked = std::make_shared<testing::CollectingSink>();
  parked->set_full_after(2);
  ASSERT_TRUE(engine->Submit(Spec(Prompt(20, 300, 9)), parked).ok());
  ASSERT_TRUE(parked->WaitTokens(2));
  const Answer answer = Ask(*engine, Spec(prompt_));
  EXPECT_EQ(answer, expected);
  EXPECT_EQ(answer.usage.restored_tokens, kKept);
  EXPECT_EQ(Metric(*engine, "kv_tier_checks_total"), 1);
  EXPECT_EQ(parked->done_calls(), 0);
  parked->set_has_room(true);
  EXPECT_EQ(WaitForAnswer(*parked).ids.size(), 12u);
}

// Requests that begin the same way and wait together all answer right, and so does one that waits
// while the first is cancelled.
TEST_F(PageTierCheckTest, NobodyElseUsesWhatIsNotCheckedYet) {
  const Answer expected = Leave();
  Falsify(0, kKept);  // whichever page is computed
  const auto engine = Make(Options(KvVerify::kSample));
  std::vector<std::shared_ptr<testing::CollectingSink>> sinks;
  std::vector<RequestId> ids;
  for (int i = 0; i < 4; ++i) {
    sinks.push_back(std::make_shared<testing::CollectingSink>());
    const auto id = engine->Submit(Spec(prompt_), sinks.back());
    ASSERT_TRUE(id.ok());
    ids.push_back(*id);
  }
  engine->Cancel(ids[0]);
  for (int i = 1; i < 4; ++i) {
    const auto done = sinks[i]->Wait();
    ASSERT_TRUE(done.has_value() && done->status.ok()) << i;
    EXPECT_EQ(sinks[i]->ids(), expected.ids) << i;
  }
}

}  // namespace
}  // namespace annulus
