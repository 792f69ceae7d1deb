// Why no more of a prompt was reused: Usage::cache_miss.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/pages/page_tier_fixture.h"

namespace annulus {
namespace {

using Reason = CacheMiss::Reason;

class CacheMissTest : public testing::PageTierFixture {
 protected:
  CacheMissTest() : model_(testing::WithoutWindows(folder_)) {}

  std::unique_ptr<Engine> InMemory(int ranks = 1) {
    EngineOptions options = Options(model_, ranks);
    options.kv_disk.clear();
    return Make(options);
  }

  static RequestSpec Of(std::vector<int32_t> prompt, const std::string& tenant = "us") {
    RequestSpec spec = Spec(std::move(prompt));
    spec.tenant = *TenantId::FromName(tenant);
    return spec;
  }

  static std::vector<int32_t> Changed(std::vector<int32_t> prompt, int at) {
    prompt[at] = prompt[at] == 5 ? 6 : 5;
    return prompt;
  }

  static void ExpectMiss(const Usage& usage, Reason reason, int64_t position) {
    ASSERT_TRUE(usage.cache_miss.has_value());
    EXPECT_EQ(static_cast<int>(usage.cache_miss->reason), static_cast<int>(reason));
    EXPECT_EQ(usage.cache_miss->position, position);
  }

  const std::vector<int32_t> prompt_ = Prompt(20 * kPage + 5, 300);
  const std::string model_;
};

TEST_F(CacheMissTest, TheFirstOtherTokenIsFoundInsideItsPage) {
  for (const int ranks : {1, 3}) {
    const auto engine = InMemory(ranks);
    EXPECT_EQ(Ask(*engine, Of(prompt_)).usage.cache_miss, std::nullopt) << "nothing was there";
    EXPECT_EQ(Ask(*engine, Of(prompt_)).usage.cache_miss, std::nullopt) << "all of it was";
    for (const int at : {10 * kPage, 7 * kPage + 9, 5 * kPage - 1}) {
      const Usage usage = Ask(*engine, Of(Changed(prompt_, at))).usage;
      EXPECT_EQ(usage.cached_tokens, at / kPage * kPage);
      ExpectMiss(usage, Reason::kOtherTokens, at);
    }
    // The nearest of those that go on from there.
    const Usage usage =
        Ask(*engine, Of(Changed(Changed(prompt_, 7 * kPage + 9), 7 * kPage + 12))).usage;
    ExpectMiss(usage, Reason::kOtherTokens, 7 * kPage + 12);
  }
}

TEST_F(CacheMissTest, NothingStandsInTheWayOfTextThatGoesOn) {
  const auto engine = InMemory();
  std::vector<int32_t> beginning(prompt_.begin(), prompt_.begin() + 8 * kPage);
  Ask(*engine, Of(beginning));
  const Usage longer = Ask(*engine, Of(prompt_)).usage;
  EXPECT_EQ(longer.cached_tokens, 8 * kPage);
  EXPECT_EQ(longer.cache_miss, std::nullopt);
  // Nor where less than a page is left.
  EXPECT_EQ(Ask(*engine, Of(Changed(prompt_, 20 * kPage + 2))).usage.cache_miss, std::nullopt);
}

// The nearest prompt may differ in the first page already; of several, the one that begins most
// alike counts, on whatever ring and however old.
TEST_F(CacheMissTest, TheFirstPageMayBeAnother) {
  for (const int ranks : {1, 3}) {
    const auto engine = InMemory(ranks);
    EXPECT_EQ(Ask(*engine, Of(prompt_)).usage.cache_miss, std::nullopt) << "nothing was there";
    for (const int at : {3, 0, kPage - 1}) {
      const Usage usage = Ask(*engine, Of(Changed(prompt_, at))).usage;
      EXPECT_EQ(usage.cached_tokens, 0);
      ExpectMiss(usage, Reason::kOtherTokens, at);
    }
    ExpectMiss(Ask(*engine, Of(Changed(Changed(prompt_, 3), 9))).usage, Reason::kOtherTokens, 9);
    // Less than a page can never be reused.
    const std::vector<int32_t> little(prompt_.begin() + 1, prompt_.begin() + kPage);
    EXPECT_EQ(Ask(*engine, Of(little)).usage.cache_miss, std::nullopt);
    // Another tenant's prompts are not compared, however near they are.
    EXPECT_EQ(Ask(*engine, Of(Changed(prompt_, 4), "them")).usage.cache_miss, std::nullopt);
    ExpectMiss(Ask(*engine, Of(Changed(prompt_, 9), "them")).usage, Reason::kOtherTokens, 4);
  }
}

// Pages of a policy serve no other, so they are not what a prompt differs from; dense ones are.
TEST_F(CacheMissTest, ThePagesOfAPolicyAreComparedForItAlone) {
  const auto engine = InMemory();
  const auto window = [](RequestSpec spec) {
    spec.attention = AttentionPolicy{.kind = PolicyKind::kWindow, .block = kPage};
    return spec;
  };
  Ask(*engine, window(Of(prompt_)));
  EXPECT_EQ(Ask(*engine, Of(Changed(prompt_, 7))).usage.cache_miss, std::nullopt);
  ExpectMiss(Ask(*engine, window(Of(Changed(prompt_, 9)))).usage, Reason::kOtherTokens, 9);
  RequestSpec strided = Of(Changed(prompt_, 8));
  strided.attention = AttentionPolicy{.kind = PolicyKind::kStrided, .block = kPage};
  ExpectMiss(Ask(*engine, strided).usage, Reason::kOtherTokens, 7);
}

// A document behind another beginning, however short that is, is read again, and the reply says
// where the beginnings differ.
TEST_F(CacheMissTest, TheSameDocumentBehindAnotherBeginning) {
  const auto engine = InMemory();
  const auto with = [](RequestSpec spec) {
    spec.documents = {{8, "text"}};
    return spec;
  };
  EXPECT_EQ(Ask(*engine, with(Of(prompt_))).usage.cache_miss, std::nullopt);
  const Usage other = Ask(*engine, with(Of(Changed(prompt_, 3)))).usage;
  EXPECT_EQ(other.cached_tokens, 0);
  ExpectMiss(other, Reason::kOtherTokens, 3);
  // Of both that are there now, the one that is more like it.
  ExpectMiss(Ask(*engine, with(Of(Changed(prompt_, 6)))).usage, Reason::kOtherTokens, 6);
  // One without a document is compared with all; one of another tenant's with none of them.
  ExpectMiss(Ask(*engine, Of(Changed(prompt_, 4))).usage, Reason::kOtherTokens, 4);
  // Those with the document count alone, even if others begin more alike.
  ExpectMiss(Ask(*engine, with(Of(Changed(Changed(prompt_, 4), 7)))).usage, Reason::kOtherTokens,
             4);
  EXPECT_EQ(Ask(*engine, with(Of(Changed(prompt_, 4), "them"))).usage.cache_miss, std::nullopt);
}

// What another tenant left is as if it were not there.
TEST_F(CacheMissTest, TellsOfTheTenantsOwnOnly) {
  const auto engine = InMemory();
  RequestSpec theirs = Of(prompt_, "them");
  theirs.attention = AttentionPolicy{.kind = PolicyKind::kWindow, .block = kPage};
  Ask(*engine, theirs);
  Ask(*engine, Of(prompt_, "them"));
  EXPECT_EQ(Ask(*engine, Of(Changed(prompt_, 70))).usage.cache_miss, std::nullopt);
  const Usage usage = Ask(*engine, Of(prompt_)).usage;
  EXPECT_EQ(usage.cached_tokens, 4 * kPage);
  ExpectMiss(usage, Reason::kOtherTokens, 70);
}

TEST_F(CacheMissTest, WhatWentToMakeRoomIsRemembered) {
  EngineOptions options = Options(model_, 1);
  options.kv_disk.clear();
  {
    const auto probe = Make(options);
    options.kv_memory_bytes = static_cast<size_t>(probe->model().kv_bytes_per_token) * 30 * kPage;
  }
  const auto engine = Make(options);
  Ask(*engine, Of(prompt_));
  Ask(*engine, Of(Prompt(20 * kPage, 300, 4), "them"));
  const Usage usage = Ask(*engine, Of(prompt_)).usage;
  EXPECT_LT(usage.cached_tokens, 20 * kPage);
  ExpectMiss(usage, Reason::kEvicted, usage.cached_tokens);
  // A tenant that never had it hears nothing of it.
  EXPECT_EQ(Ask(*engine, Of(prompt_, "others")).usage.cache_miss, std::nullopt);
}

TEST_F(CacheMissTest, AnotherPolicysPagesAreNamed) {
  const auto engine = InMemory();
  RequestSpec window = Of(prompt_);
  window.attention = AttentionPolicy{.kind = PolicyKind::kWindow, .block = kPage};
  Ask(*engine, window);
  const Usage usage = Ask(*engine, Of(prompt_)).usage;
  EXPECT_EQ(usage.cached_tokens, 0);
  ExpectMiss(usage, Reason::kOtherAttention, 0);
  // Dense pages serve every policy.
  RequestSpec strided = Of(prompt_);
  strided.attention = AttentionPolicy{.kind = PolicyKind::kStrided, .block = kPage};
  EXPECT_EQ(Ask(*engine, strided).usage.cache_miss, std::nullopt);
}

// Pages that an earlier daemon left on disk under another identity are of no use, and named.
TEST_F(CacheMissTest, AnotherModelsPagesOnDiskAreNamed) {
  EngineOptions options = Options(model_, 1);
  options.kv_dtype = DType::kBF16;
  {
    const auto engine = Make(options);
    Ask(*engine, Of(prompt_));
    ASSERT_TRUE(WaitForPages(*engine, 20) && WaitForWrites(*engine));
  }
  options.kv_dtype = DType::kF32;
  const auto engine = Make(options);
  EXPECT_EQ(Ask(*engine, Of(prompt_, "them")).usage.cache_miss, std::nullopt)
      << "what another tenant left is not there";
  const Usage first = Ask(*engine, Of(Changed(prompt_, 5 * kPage))).usage;
  EXPECT_EQ(first.cached_tokens, 0);
  ExpectMiss(first, Reason::kOtherModel, 0);
  const Usage more = Ask(*engine, Of(prompt_)).usage;
  EXPECT_EQ(more.cached_tokens, 5 * kPage);
  ExpectMiss(more, Reason::kOtherModel, 5 * kPage);
  // It has no more of it than memory.
  const Usage other = Ask(*engine, Of(Changed(prompt_, 10 * kPage + 3))).usage;
  EXPECT_EQ(other.cached_tokens, 10 * kPage);
  ExpectMiss(other, Reason::kOtherTokens, 10 * kPage + 3);
  EXPECT_EQ(Ask(*engine, Of(prompt_)).usage.cache_miss, std::nullopt) << "all of it was there";
}

// Its own pages are not another's, and where nothing comes back they are no reason either.
TEST_F(CacheMissTest, NoOtherModelIsNamedWithoutItsPages) {
  EngineOptions options = Options(model_, 1);
  options.kv_dtype = DType::kBF16;
  { const auto engine = Make(options); }
  options.kv_dtype = DType::kF32;
  {
    const auto engine = Make(options);
    EXPECT_EQ(Ask(*engine, Of(prompt_)).usage.cache_miss, std::nullopt);
    ASSERT_TRUE(WaitForPages(*engine, 20) && WaitForWrites(*engine));
  }
  options.kv_verify = KvVerify::kAll;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    options.kv_dtype = dtype;
    const auto engine = Make(options);
    EXPECT_EQ(Ask(*engine, Of(prompt_)).usage.cache_miss, std::nullopt) << DTypeName(dtype);
  }
}

// The answer is the same; what is there is passed over in memory and on disk, and stays there.
TEST_F(CacheMissTest, ARequestMayIgnoreWhatIsThere) {
  RequestSpec ignoring = Of(prompt_);
  ignoring.ignore_cache = true;
  Answer first;
  {
    const auto engine = Make(Options(model_, 1));
    first = Ask(*engine, ignoring);
    EXPECT_EQ(first.usage.cache_miss, std::nullopt) << "nothing was there to ignore";
    EXPECT_EQ(Ask(*engine, Of(prompt_)).usage.cached_tokens, 20 * kPage) << "it was kept";
    const Answer again = Ask(*engine, ignoring);
    EXPECT_EQ(again, first);
    EXPECT_EQ(again.usage.cached_tokens, 0);
    ExpectMiss(again.usage, Reason::kIgnored, 0);
    EXPECT_EQ(Ask(*engine, Of(prompt_)).usage.cached_tokens, 20 * kPage) << "it stayed";
    ASSERT_TRUE(WaitForPages(*engine, 20));
  }
  const auto engine = Make(Options(model_, 1));
  const Answer again = Ask(*engine, ignoring);
  EXPECT_EQ(again, first);
  EXPECT_EQ(again.usage.cached_tokens, 0);
  EXPECT_EQ(again.usage.restored_tokens, 0);
  ExpectMiss(again.usage, Reason::kIgnored, 0);
  EXPECT_EQ(Metric(*engine, "kv_tier_restores_total"), 0);
}

// A new version of a document reuses what stands before its first change, whatever follows.
TEST_F(CacheMissTest, AnEditedDocumentIsReadFromItsFirstChange) {
  const auto engine = InMemory(2);
  RequestSpec read = Of(prompt_);
  read.prefill_only = true;
  read.shared_prefixes = {static_cast<int32_t>(prompt_.size())};
  Ask(*engine, read);
  const int change = 11 * kPage + 3;
  std::vector<int32_t> edited = prompt_;
  const std::vector<int32_t> added = Prompt(40, 300, 9);
  edited.insert(edited.begin() + change, added.begin(), added.end());
  const bool same = edited[change] == prompt_[change];
  ASSERT_FALSE(same);
  RequestSpec again = Of(edited);
  again.prefill_only = true;
  again.shared_prefixes = {static_cast<int32_t>(edited.size())};
  const Usage usage = Ask(*engine, again).usage;
  EXPECT_EQ(usage.cached_tokens, 11 * kPage);
  ExpectMiss(usage, Reason::kOtherTokens, change);
  // A question about either version finds all of it.
  for (const std::vector<int32_t>& version : {prompt_, edited}) {
    std::vector<int32_t> question = version;
    question.insert(question.end(), {7, 8, 9});
    EXPECT_EQ(Ask(*engine, Of(question)).usage.cached_tokens, std::ssize(version) / kPage * kPage);
  }
  // It has the bits of one that was never read before.
  const auto fresh = InMemory(1);
  EXPECT_EQ(Ask(*engine, Of(edited)), Ask(*fresh, Of(edited)));
}

}  // namespace
}  // namespace annulus
