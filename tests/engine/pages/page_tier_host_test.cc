// Pages that the ranks' memory has no room for stay in the host's, go on to the disk from there,
// and come back with the same bits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/pages/page_tier_fixture.h"
#include "tests/support/false_pages.h"
#include "tests/support/pages_in_memory.h"

namespace annulus {
namespace {

using Reason = CacheMiss::Reason;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class PageTierHostTest : public testing::PageTierFixture {
 protected:
  static constexpr int kTokens = 330;
  static constexpr int kPages = kTokens / kPage;
  static constexpr int32_t kKept = kPages * kPage;
  // A text that takes all of memory, with the answer of twelve tokens.
  static constexpr int kMemoryPages = kPages + 4;
  static constexpr int kFilling = kMemoryPages * kPage - 12;
  static constexpr int kFillingPages = kFilling / kPage;

  PageTierHostTest() : model_(testing::SlowToCompute(folder_)) {
    EngineOptions plain = PageTierFixture::Options(model_, 1);
    plain.kv_disk.clear();
    plain_ = Make(plain);
    page_bytes_ = plain_->model().kv_bytes_per_token * kPage;
  }

  // Ranks whose memory has one text at a time, and so many pages in the host's.
  EngineOptions Options(int host_pages, int ranks = 1) const {
    EngineOptions options = PageTierFixture::Options(model_, ranks);
    options.kv_disk.clear();
    options.kv_memory_bytes = static_cast<size_t>(kMemoryPages * page_bytes_);
    options.kv_host_bytes = host_pages * (page_bytes_ + 4096);
    return options;
  }

  std::vector<int32_t> Text(int seed) const { return Prompt(kTokens, 300, seed); }

  // What this engine answers is what one without tiers does.
  Answer AskAndCompare(Engine& engine, const RequestSpec& spec) {
    const Answer answer = Ask(engine, spec);
    EXPECT_EQ(answer, Ask(*plain_, spec));
    return answer;
  }

  // Asks about another text, so that memory has nothing of those before.
  void FillMemory(Engine& engine) { Ask(engine, Spec(Prompt(kFilling, 300, next_seed_++))); }
  void FillMemory(Engine& engine, const std::string& tier) {
    const double pages = Metric(engine, "kv_tier_pages", tier);
    FillMemory(engine);
    EXPECT_TRUE(WaitForPages(engine, pages + kFillingPages, tier));
  }

  const std::string model_;
  std::unique_ptr<Engine> plain_;
  int64_t page_bytes_ = 0;
  int next_seed_ = 1000;
};

TEST_F(PageTierHostTest, WhatMemoryLosesComesBackWithTheSameBits) {
  const auto engine = Make(Options(3 * kPages));
  const RequestSpec one = Spec(Text(1));
  EXPECT_EQ(AskAndCompare(*engine, one).usage.restored_tokens, 0);
  ASSERT_TRUE(WaitForPages(*engine, kPages, "host"));
  EXPECT_EQ(Ask(*engine, one).usage.restored_tokens, 0) << "memory has it";
  FillMemory(*engine);
  for (int turn = 1; turn <= 2; ++turn) {
    const Answer answer = AskAndCompare(*engine, one);
    EXPECT_EQ(answer.usage.restored_tokens, kKept);
    EXPECT_EQ(answer.usage.host_tokens, kKept);
    EXPECT_EQ(answer.usage.cache_miss, std::nullopt);
    EXPECT_EQ(Metric(*engine, "kv_tier_restores_total", "host"), turn);
    EXPECT_EQ(Metric(*engine, "kv_tier_hits_total", "host"), turn * kKept);
    EXPECT_EQ(Metric(*engine, "kv_tier_checks_total", "host"), turn);
    FillMemory(*engine);
  }
  EXPECT_EQ(Metric(*engine, "kv_tier_restores_total", "disk"), 0);
  EXPECT_EQ(Metric(*engine, "kv_tier_up", "disk"), 0) << "there is none";
  EXPECT_EQ(Metric(*engine, "kv_tier_rejects_total", "host"), 0);
  EXPECT_GT(engine->Load().memory.kv_host, 0);
  EXPECT_LE(engine->Load().memory.kv_host, 3 * kPages * (page_bytes_ + 4096));
}

// A short text lies on one rank, a long one that begins like it on four.
TEST_F(PageTierHostTest, AtAnotherRingDegreeToo) {
  EngineOptions options = Options(6 * kPages, 4);
  options.kv_memory_bytes = static_cast<size_t>(4 * kMemoryPages * page_bytes_);
  options.tokens_per_rank = kTokens / 3;
  const auto engine = Make(options);
  const std::vector<int32_t> text = Text(1);
  const RequestSpec whole = Spec(text);
  const RequestSpec beginning = Spec({text.begin(), text.begin() + kTokens / 4});
  const int32_t of_beginning = (kTokens / 4 - 1) / kPage * kPage;
  const auto forget = [&] {
    for (int i = 0; i < 5; ++i) Ask(*engine, Spec(Text(next_seed_++)));
  };
  AskAndCompare(*engine, beginning);
  ASSERT_TRUE(WaitForPages(*engine, of_beginning / kPage, "host"));
  forget();
  EXPECT_EQ(AskAndCompare(*engine, whole).usage.host_tokens, of_beginning);
  ASSERT_TRUE(WaitForPages(*engine, 6 * kPages - 1, "host")) << "as many as there is room for";
  forget();
  EXPECT_GT(AskAndCompare(*engine, beginning).usage.host_tokens, 0);
}

TEST_F(PageTierHostTest, WithWindowsToo) {
  const testing::TempDirectory folder;
  EngineOptions options = Options(0);
  options.model =
      testing::RandomModel(folder, "golden/gpt_oss/config.json",
                           [](nlohmann::json& config) { config.erase("quantization_config"); });
  options.kv_memory_bytes = 64 << 20;
  const auto plain = Make(options);
  options.kv_host_bytes = 64 << 20;
  const RequestSpec filling = Spec(Prompt(kFilling, 300));
  std::unique_ptr<Engine> engine;
  for (auto smaller = Make(options); smaller->Validate(filling).ok();) {
    engine = std::move(smaller);
    options.kv_memory_bytes = options.kv_memory_bytes * 3 / 4;
    smaller = Make(options);
  }
  const RequestSpec spec = Spec(Text(1));
  const Answer expected = Ask(*plain, spec);
  EXPECT_EQ(Ask(*engine, spec), expected);
  ASSERT_TRUE(WaitForPages(*engine, kPages + 2, "host"));
  for (int other = 0; other < 3; ++other) FillMemory(*engine);
  EXPECT_EQ(Ask(*engine, spec), expected);
  EXPECT_GT(Metric(*engine, "kv_tier_hits_total", "host"), 0);
}

TEST_F(PageTierHostTest, NothingIsAnothersTenant) {
  const auto engine = Make(Options(3 * kPages));
  AskAndCompare(*engine, Spec(Text(1)));
  ASSERT_TRUE(WaitForPages(*engine, kPages, "host"));
  RequestSpec stranger = Spec(Text(1));
  stranger.tenant = *TenantId::FromName("stranger");
  EXPECT_EQ(AskAndCompare(*engine, stranger).usage.cached_tokens, 0);
  EXPECT_EQ(Metric(*engine, "kv_tier_restores_total", "host"), 0);
}

// A tenant's own pages make room where it may have no more.
TEST_F(PageTierHostTest, ATenantHasNoMoreThanItMay) {
  const auto engine = Make(Options(8 * kPages));
  RequestSpec spec = Spec(Text(1));
  spec.tenant = *TenantId::FromName("small");
  spec.tenant_room.host_bytes = kPages / 2 * (page_bytes_ + 4096);
  Ask(*engine, spec);
  ASSERT_TRUE(WaitForPages(*engine, kPages / 2, "host"));
  FillMemory(*engine, "host");
  EXPECT_EQ(Metric(*engine, "kv_tier_pages", "host"), kPages / 2 + kFillingPages);
  const Answer answer = AskAndCompare(*engine, spec);
  EXPECT_EQ(answer.usage.host_tokens, kPages / 2 * kPage) << "its beginning";
}

TEST_F(PageTierHostTest, ADeletedDocumentLeavesTheHost) {
  const auto engine = Make(Options(3 * kPages));
  RequestSpec spec = Spec(Text(1));
  spec.documents = {{40, "first"}, {100, "second"}};
  Ask(*engine, spec);
  ASSERT_TRUE(WaitForPages(*engine, kPages, "host"));
  const std::vector<std::string> contents = {"first", "second"};
  const auto kept = engine->FindDocuments(TenantId(), contents, CancelFlag::Never());
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->at(0).host_tokens, (kPages - 40 / kPage) * kPage);
  EXPECT_EQ(kept->at(1).host_tokens, (kPages - 100 / kPage) * kPage);
  EXPECT_EQ(kept->at(0).disk_tokens, 0);
  EXPECT_TRUE(engine->ForgetDocument(TenantId(), "second", CancelFlag::Never()).ok());
  EXPECT_EQ(Metric(*engine, "kv_tier_pages", "host"), 100 / kPage);
  FillMemory(*engine);
  EXPECT_EQ(AskAndCompare(*engine, spec).usage.host_tokens, 100 / kPage * kPage);
}

// What a bit of the memory has flipped in is computed.
TEST_F(PageTierHostTest, AFlippedBitIsAMiss) {
  const auto engine = Make(Options(3 * kPages));
  const RequestSpec spec = Spec(Text(1));
  Ask(*engine, spec);
  ASSERT_TRUE(WaitForPages(*engine, kPages, "host"));
  FillMemory(*engine, "host");
  const int32_t broken = 5 * kPage;
  EXPECT_GE(testing::FlipPagesInMemory(broken, broken + kPage, (kEntryHeaderBytes + 1000) * 8), 2)
      << "of this text and of the one that filled memory";
  const Answer answer = AskAndCompare(*engine, spec);
  EXPECT_EQ(answer.usage.host_tokens, broken);
  ASSERT_TRUE(answer.usage.cache_miss.has_value());
  EXPECT_EQ(answer.usage.cache_miss->reason, Reason::kDiskRefused);
  EXPECT_EQ(Metric(*engine, "kv_tier_rejects_total", "host"), 1);
  EXPECT_EQ(Metric(*engine, "kv_tier_up", "host"), 1);
}

// Under a right checksum, computing the last page again tells.
TEST_F(PageTierHostTest, WhatComputingDoesNotGiveIsNotUsed) {
  const auto engine = Make(Options(3 * kPages));
  const RequestSpec spec = Spec(Text(1));
  Ask(*engine, spec);
  ASSERT_TRUE(WaitForPages(*engine, kPages, "host"));
  FillMemory(*engine, "host");
  EXPECT_EQ(testing::ChangePagesInMemory(2 * kPage, 3 * kPage, testing::FalsifyPage), 2);
  const Answer answer = AskAndCompare(*engine, Checking(spec, kPages - 1, kPages, 3));
  EXPECT_EQ(answer.usage.checked_position, kKept - kPage);
  EXPECT_EQ(answer.usage.restored_tokens, 0);
  ASSERT_TRUE(answer.usage.cache_miss.has_value());
  EXPECT_EQ(answer.usage.cache_miss->reason, Reason::kDiskRefused);
  EXPECT_EQ(Metric(*engine, "kv_tier_mismatches_total", "host"), 1);
  EXPECT_EQ(engine->Load().tiers.at(0).kind, TierKind::kHost);
  EXPECT_EQ(engine->Load().tiers.at(0).mismatches, 1);
}

class HostAndDiskTest : public PageTierHostTest {
 protected:
  EngineOptions Options(int host_pages) const {
    EngineOptions options = PageTierHostTest::Options(host_pages);
    options.kv_disk = disk();
    return options;
  }
};

// What makes room in the host is on the disk, and what is on the disk needs no room in the host.
TEST_F(HostAndDiskTest, WhatTheHostGivesUpIsOnTheDisk) {
  const RequestSpec one = Spec(Text(1));
  {
    const auto engine = Make(Options(kFillingPages + kPages / 2));
    AskAndCompare(*engine, one);
    ASSERT_TRUE(WaitForPages(*engine, kPages, "disk"));
    EXPECT_EQ(Metric(*engine, "kv_tier_pages", "host"), kPages);
    FillMemory(*engine, "disk");
    EXPECT_EQ(Metric(*engine, "kv_tier_pages", "host"), kFillingPages + kPages / 2)
        << "all of its room";
    EXPECT_LE(Metric(*engine, "kv_tier_bytes", "host"),
              Metric(*engine, "kv_tier_limit_bytes", "host"));
    const Answer answer = AskAndCompare(*engine, one);
    EXPECT_EQ(answer.usage.restored_tokens, kKept);
    EXPECT_EQ(answer.usage.host_tokens, kPages / 2 * kPage) << "its beginning stayed";
    EXPECT_EQ(Metric(*engine, "kv_tier_hits_total", "disk"), kKept - answer.usage.host_tokens);
    // It was used, so it is in the host again.
    FillMemory(*engine, "disk");
    EXPECT_GT(AskAndCompare(*engine, one).usage.host_tokens, 0);
  }
  const auto engine = Make(Options(2 * kPages));
  const Answer answer = AskAndCompare(*engine, one);
  EXPECT_EQ(answer.usage.restored_tokens, kKept) << "the disk outlives the engine";
  EXPECT_EQ(answer.usage.host_tokens, 0);
  ASSERT_TRUE(WaitForPages(*engine, kPages, "host"))
      << "what came back is used, so it is there too";
}

// A text that is larger than the host goes to the disk past it.
TEST_F(HostAndDiskTest, ATextLargerThanTheHostIsKeptWhole) {
  const auto engine = Make(Options(kPages / 2));
  const RequestSpec one = Spec(Text(1));
  AskAndCompare(*engine, one);
  ASSERT_TRUE(WaitForPages(*engine, kPages, "disk"));
  EXPECT_EQ(Metric(*engine, "kv_tier_pages", "host"), kPages / 2);
  FillMemory(*engine, "disk");
  EXPECT_EQ(AskAndCompare(*engine, one).usage.restored_tokens, kKept);
}

// What is broken in the host comes from the disk.
TEST_F(HostAndDiskTest, AFlippedBitInTheHostIsReadFromTheDisk) {
  const auto engine = Make(Options(3 * kPages));
  const RequestSpec spec = Spec(Text(1));
  Ask(*engine, spec);
  ASSERT_TRUE(WaitForPages(*engine, kPages, "disk"));
  FillMemory(*engine, "disk");
  EXPECT_GE(testing::FlipPagesInMemory(5 * kPage, 7 * kPage, (kEntryHeaderBytes + 1000) * 8), 4);
  const Answer answer = AskAndCompare(*engine, spec);
  EXPECT_EQ(answer.usage.restored_tokens, kKept);
  EXPECT_EQ(answer.usage.host_tokens, kKept - 2 * kPage);
  EXPECT_EQ(Metric(*engine, "kv_tier_rejects_total", "host"), 2);
  EXPECT_EQ(Metric(*engine, "kv_tier_rejects_total", "disk"), 0);
}

TEST_F(HostAndDiskTest, ADeletedDocumentLeavesBoth) {
  const auto engine = Make(Options(3 * kPages));
  RequestSpec spec = Spec(Text(1));
  spec.documents = {{0, "text"}};
  Ask(*engine, spec);
  ASSERT_TRUE(WaitForPages(*engine, kPages, "disk"));
  EXPECT_TRUE(engine->ForgetDocument(TenantId(), "text", CancelFlag::Never()).ok());
  EXPECT_EQ(Metric(*engine, "kv_tier_pages", "host"), 0);
  EXPECT_EQ(Metric(*engine, "kv_tier_pages", "disk"), 0);
  EXPECT_TRUE(Files().empty());
}

// A false page is dropped wherever it is.
TEST_F(HostAndDiskTest, AFalsePageLeavesBoth) {
  const auto engine = Make(Options(3 * kPages));
  const RequestSpec spec = Spec(Text(1));
  Ask(*engine, spec);
  ASSERT_TRUE(WaitForPages(*engine, kPages, "disk"));
  FillMemory(*engine, "disk");
  EXPECT_EQ(testing::ChangePagesInMemory(2 * kPage, 3 * kPage, testing::FalsifyPage), 2);
  const Answer answer = AskAndCompare(*engine, Checking(spec, kPages - 1, kPages, 3));
  EXPECT_EQ(answer.usage.checked_position, kKept - kPage);
  EXPECT_EQ(answer.usage.restored_tokens, 0);
  EXPECT_EQ(Metric(*engine, "kv_tier_mismatches_total", "host"), 1);
  EXPECT_EQ(Metric(*engine, "kv_tier_mismatches_total", "disk"), 0) << "it gave nothing";
  ASSERT_TRUE(WaitForPages(*engine, kPages + kFillingPages, "disk"))
      << "what was computed is written anew";
}

TEST_F(PageTierHostTest, WhatCannotBeIsRefusedAtTheStart) {
  EngineOptions options = Options(0);
  options.kv_host_bytes = 1000;
  auto engine = CreateEngine(options, *backend_, registry_);
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(engine.status().message()),
              MatchesRegex("kv-host is 1000 bytes; give at least 10[0-9]+ bytes, enough for .*"));
  options.kv_host_bytes = int64_t{1} << 50;
  engine = CreateEngine(options, *backend_, registry_);
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("lower --kv-memory, --kv-host"));
}

}  // namespace
}  // namespace annulus
