// What one engine computed of a prompt, another one finds on disk: the same bits, and nothing of
// another tenant, model or dtype, whatever happened to the files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/tiers/disk_folder.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/pages/page_tier_fixture.h"

namespace annulus {
namespace {

using testing::CollectingSink;
using ::testing::HasSubstr;
using testing::WithoutWindows;
namespace fs = std::filesystem;

class PageTierTest : public testing::PageTierFixture {
 protected:
  // Asks one engine, then others with more ranks and fewer.
  void Check(const std::string& model, double least_pages) {
    EngineOptions off = Options(model, 1);
    off.kv_disk.clear();
    const auto plain = Make(off);
    const std::vector<int32_t> prompt = Prompt(330, plain->model().vocabulary);
    const Answer expected = Ask(*plain, Spec(prompt));
    {
      const auto engine = Make(Options(model, 2));
      const Answer first = Ask(*engine, Spec(prompt));
      EXPECT_EQ(first, expected);
      EXPECT_EQ(first.usage.cached_tokens, 0);
      ASSERT_TRUE(WaitForPages(*engine, least_pages) && WaitForWrites(*engine));
      const Answer again = Ask(*engine, Spec(prompt));
      EXPECT_EQ(again.usage.cached_tokens, 320);
      EXPECT_EQ(again.usage.restored_tokens, 0) << "memory has it";
      EXPECT_GT(Metric(*engine, "kv_tier_moved_bytes_total", "disk", "write"), 0);
      EXPECT_GT(Metric(*engine, "kv_tier_seconds_total", "disk", "write"), 0);
      EXPECT_EQ(Metric(*engine, "kv_tier_moved_bytes_total", "disk", "read"), 0);
    }
    for (const int ranks : {1, 4, 3}) {
      const auto engine = Make(Options(model, ranks));
      const Answer restored = Ask(*engine, Spec(prompt));
      EXPECT_EQ(restored, expected) << ranks << " ranks";
      EXPECT_EQ(restored.usage.cached_tokens, 320) << ranks << " ranks";
      EXPECT_EQ(restored.usage.restored_tokens, 320) << ranks << " ranks";
      const Answer cached = Ask(*engine, Spec(prompt));
      EXPECT_EQ(cached, expected);
      EXPECT_EQ(cached.usage.restored_tokens, 0);
      EXPECT_EQ(Metric(*engine, "kv_tier_restores_total"), 1);
      EXPECT_EQ(Metric(*engine, "kv_tier_hits_total"), 320);
      EXPECT_GT(Metric(*engine, "kv_tier_moved_bytes_total", "disk", "read"), 0);
      EXPECT_GT(Metric(*engine, "kv_tier_seconds_total", "disk", "read"), 0);
      EXPECT_GT(Metric(*engine, "kv_tier_bytes"), 0);
      EXPECT_EQ(Metric(*engine, "kv_tier_io_errors_total"), 0);
      EXPECT_EQ(Metric(*engine, "kv_tier_rejects_total"), 0);
      EXPECT_EQ(Metric(*engine, "kv_tier_up"), 1);
    }
  }
};

std::string Stories() {
  const auto directory = testing::TestData("models/stories260K");
  return directory.has_value() ? directory->string() : "";
}

// It computes no token, so its last page comes back too, and nothing of it is computed again.
TEST_F(PageTierTest, WhatIsOnlyReadAheadComesBackWhole) {
  const testing::TempDirectory folder;
  const std::string model = WithoutWindows(folder);
  RequestSpec spec = Spec(Prompt(8 * kPage, 300));
  spec.prefill_only = true;
  spec.shared_prefixes = {8 * kPage};
  {
    const auto engine = Make(Options(model, 1));
    EXPECT_EQ(Ask(*engine, spec).usage.cached_tokens, 0);
    ASSERT_TRUE(WaitForPages(*engine, 8));
  }
  const auto engine = Make(Options(model, 1));
  EXPECT_EQ(Ask(*engine, spec).usage.cached_tokens, 8 * kPage);
  EXPECT_EQ(Metric(*engine, "kv_tier_restores_total"), 1);
  // Memory has it now.
  EXPECT_EQ(Ask(*engine, spec).usage.cached_tokens, 8 * kPage);
  EXPECT_EQ(Metric(*engine, "kv_tier_restores_total"), 1);
}

TEST_F(PageTierTest, AnotherEngineRestoresTheSameBits) {
  if (Stories().empty()) GTEST_SKIP() << "the test data is absent";
  Check(Stories(), 20);
}

TEST_F(PageTierTest, WithWindowsToo) {
  Check(testing::RandomModel(folder_, "golden/gpt_oss/config.json",
                             [](nlohmann::json& config) { config.erase("quantization_config"); }),
        20 + 2);
}

TEST_F(PageTierTest, NothingIsAnothersTenantDtypeKernelsOrShards) {
  EngineOptions options = Options("builtin:recall", 1);
  options.kv_dtype = DType::kBF16;
  const std::vector<int32_t> prompt = Prompt(200, 250);
  {
    const auto engine = Make(options);
    Ask(*engine, Spec(prompt));
    ASSERT_TRUE(WaitForPages(*engine, 12) && WaitForWrites(*engine));
  }
  // Of the same length, and of another.
  for (const DType dtype : {DType::kF16, DType::kF32}) {
    EngineOptions other = options;
    other.kv_dtype = dtype;
    EXPECT_EQ(Ask(*Make(other), Spec(prompt)).usage.restored_tokens, 0) << DTypeName(dtype);
  }
  // Other kernels give other bits.
  EngineOptions kernels = options;
  kernels.kernels = "cpu/reference";
  EXPECT_EQ(Ask(*Make(kernels), Spec(prompt)).usage.restored_tokens, 0);
  // More than 8 ranks have more virtual shards, whose sums have other bits.
  for (const auto& [ranks, tokens] : {std::pair(8, 192), std::pair(9, 0)}) {
    EngineOptions many = options;
    many.ranks = ranks;
    many.threads = 2;
    EXPECT_EQ(Ask(*Make(many), Spec(prompt)).usage.restored_tokens, tokens) << ranks << " ranks";
  }
  EngineOptions larger = options;
  larger.model = "builtin:recall3";
  EXPECT_EQ(Ask(*Make(larger), Spec(prompt)).usage.restored_tokens, 0);
  const auto engine = Make(options);
  RequestSpec stranger = Spec(prompt);
  stranger.tenant = *TenantId::FromName("stranger");
  EXPECT_EQ(Ask(*engine, std::move(stranger)).usage.restored_tokens, 0);
  RequestSpec sparse = Spec(prompt);
  sparse.attention = *ParseAssignment("window:sinks=16,window=64");
  EXPECT_EQ(Ask(*engine, std::move(sparse)).usage.restored_tokens, 192) << "dense serves all";
  EXPECT_EQ(Ask(*engine, Spec(Prompt(200, 250, 4))).usage.restored_tokens, 0);
}

// Pages that were computed under a policy serve that one alone; where it chooses by content, they
// are not kept at all.
TEST_F(PageTierTest, PagesOfAPolicyServeItAlone) {
  const EngineOptions options = Options(WithoutWindows(folder_), 1);
  const std::vector<int32_t> prompt = Prompt(200, 250);
  const auto under = [&](const char* policy) {
    RequestSpec spec = Spec(prompt);
    spec.attention = *ParseAssignment(policy);
    return spec;
  };
  constexpr char kOne[] = "window:sinks=16,window=64";
  constexpr char kOther[] = "window:sinks=16,window=96";
  constexpr char kContent[] = "adaptive";
  Answer expected;
  {
    const auto engine = Make(options);
    expected = Ask(*engine, under(kOne));
    ASSERT_TRUE(WaitForPages(*engine, 12));
    Ask(*engine, under(kContent));
  }
  EXPECT_EQ(Files().size(), 12u) << "content decided what these hold";
  EXPECT_EQ(Ask(*Make(options), under(kOther)).usage.restored_tokens, 0);
  {
    const auto engine = Make(options);
    const Answer same = Ask(*engine, under(kOne));
    EXPECT_EQ(same, expected);
    EXPECT_EQ(same.usage.restored_tokens, 192);
    EXPECT_EQ(Ask(*engine, Spec(prompt)).usage.cached_tokens, 0) << "nor dense ones";
  }
}

// Rotary frequencies that depend on the prompt's length are part of what pages are.
TEST_F(PageTierTest, PagesOfALongPromptAreNotAShortOnes) {
  const EngineOptions options =
      Options(testing::RandomModel(folder_, "golden/llama_mha/config.json",
                                   [](nlohmann::json& config) {
                                     config["rope_parameters"] = {
                                         {"rope_type", "dynamic"},
                                         {"rope_theta", 10000.0},
                                         {"factor", 4.0},
                                         {"original_max_position_embeddings", 200}};
                                     config["max_position_embeddings"] = 200;
                                   }),
              1);
  const std::vector<int32_t> text = Prompt(400, 250);
  const std::vector<int32_t> beginning(text.begin(), text.begin() + 150);
  {
    const auto engine = Make(options);
    ASSERT_NE(engine, nullptr);
    Ask(*engine, Spec(text));
    ASSERT_TRUE(WaitForPages(*engine, 24));
  }
  EXPECT_EQ(Ask(*Make(options), Spec(beginning)).usage.restored_tokens, 0);
  EXPECT_EQ(Ask(*Make(options), Spec(text)).usage.restored_tokens, 384);
}

// Pages that were broken, or have gone, are computed again; the rest is restored.
TEST_F(PageTierTest, BrokenPagesAreComputed) {
  const EngineOptions options = Options("builtin:recall", 2);
  const std::vector<int32_t> prompt = Prompt(200, 250);
  Answer expected;
  {
    const auto engine = Make(options);
    expected = Ask(*engine, Spec(prompt));
    ASSERT_TRUE(WaitForPages(*engine, 12) && WaitForWrites(*engine));
  }
  for (const bool remove : {false, true}) {
    for (int round = 0; round < 3; ++round) {
      std::mt19937 random(round);
      for (const fs::path& path : Files()) {
        const auto name = EntryName::Parse(path.filename().string());
        if (name->first_position != 192 - kPage && random() % 4 != 0) continue;
        if (remove) {
          fs::remove(path);
          continue;
        }
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(static_cast<std::streamoff>(random() % fs::file_size(path)));
        file.put('\x5a');
      }
      const auto engine = Make(options);
      const Answer answer = Ask(*engine, Spec(prompt));
      EXPECT_EQ(answer, expected) << remove << " " << round;
      EXPECT_LT(answer.usage.restored_tokens, 192);
      EXPECT_EQ(Metric(*engine, "kv_tier_up"), 1);
      ASSERT_TRUE(WaitForPages(*engine, 12)) << "what was missing is written again";
      ASSERT_TRUE(WaitForWrites(*engine));
    }
  }
}

// A prompt that was not read to its end leaves what it had.
TEST_F(PageTierTest, AnUnfinishedPromptGoesOnWhereItWas) {
  const EngineOptions options = Options(testing::SlowToCompute(folder_), 1);
  const std::vector<int32_t> prompt = Prompt(kThreadSanitizer ? 1000 : 2000, 250);
  EngineOptions off = options;
  off.kv_disk.clear();
  const Answer expected = Ask(*Make(off), Spec(prompt));
  auto sink = std::make_shared<CollectingSink>();
  {
    const auto engine = Make(options);
    ASSERT_TRUE(engine->Submit(Spec(prompt), sink).ok());
    ASSERT_TRUE(WaitForPages(*engine, 20));
  }
  EXPECT_FALSE(sink->Wait()->status.ok()) << "it was read to its end: nothing was cut";
  const Answer answer = Ask(*Make(options), Spec(prompt));
  EXPECT_EQ(answer, expected);
  EXPECT_GE(answer.usage.restored_tokens, 20 * kPage);
}

// Of a model with windows, their pages leave at the end of each chunk, before they are gone.
TEST_F(PageTierTest, AnUnfinishedPromptWithWindowsGoesOnToo) {
  constexpr int kChunk = 64;
  const std::string model = testing::WithWindows(folder_, /*slow=*/true);
  const std::vector<int32_t> prompt = Prompt(700, 250);
  EngineOptions off = Options(model, 1);
  off.kv_disk.clear();
  const Answer expected = Ask(*Make(off), Spec(prompt));
  // Cut off, and cut off again after it went on.
  for (const int pages : {20, 32}) {
    auto sink = std::make_shared<CollectingSink>();
    {
      const auto engine = Make(Options(model, 2));
      ASSERT_TRUE(engine->Submit(Spec(prompt), sink).ok());
      ASSERT_TRUE(WaitForPages(*engine, pages));
    }
    EXPECT_FALSE(sink->Wait()->status.ok()) << "it was read to its end: nothing was cut";
  }
  for (const int ranks : {1, 4}) {
    const auto engine = Make(Options(model, ranks));
    const Answer answer = Ask(*engine, Spec(prompt));
    EXPECT_EQ(answer, expected) << ranks << " ranks";
    EXPECT_GE(answer.usage.restored_tokens, 4 * kChunk) << ranks << " ranks";
    ASSERT_TRUE(WaitForWrites(*engine));
  }
}

// Where memory has the beginning, only the rest comes back.
TEST_F(PageTierTest, MemoryAndDiskTogether) {
  const EngineOptions options = Options(testing::SlowToCompute(folder_), 1);
  const std::vector<int32_t> prompt = Prompt(320, 250);
  const std::vector<int32_t> half(prompt.begin(), prompt.begin() + 161);
  Answer expected;
  {
    const auto engine = Make(options);
    expected = Ask(*engine, Spec(prompt));
    ASSERT_TRUE(WaitForPages(*engine, 20));
  }
  const auto engine = Make(options);
  EXPECT_EQ(Ask(*engine, Spec(half)).usage.restored_tokens, 160);
  const Answer answer = Ask(*engine, Spec(prompt));
  EXPECT_EQ(answer, expected);
  EXPECT_EQ(answer.usage.restored_tokens, 304 - 160) << "computing them takes longer";
  EXPECT_EQ(answer.usage.cached_tokens, 304);
}

// Of another question about the same text, memory has the text's pages in full groups, but not
// those of windows where the text ends. What is read begins in front of the windows' pages.
TEST_F(PageTierTest, MemoryAndDiskTogetherWithWindows) {
  constexpr int kText = 320;
  const EngineOptions options = Options(testing::WithWindows(folder_, /*slow=*/true), 1);
  const auto ask = [](int question, int tokens) {
    std::vector<int32_t> prompt = Prompt(kText, 250);
    const std::vector<int32_t> rest = Prompt(tokens, 250, question);
    prompt.insert(prompt.end(), rest.begin(), rest.end());
    return Spec(std::move(prompt));
  };
  const std::vector<RequestSpec> specs = {ask(10, 85), ask(11, 85), ask(12, 25)};
  std::vector<Answer> expected;
  {
    const auto engine = Make(options);
    for (const RequestSpec& spec : specs) {
      expected.push_back(Ask(*engine, spec));
      ASSERT_TRUE(WaitForWrites(*engine));
    }
  }
  const auto engine = Make(options);
  // The row behind the last page sees 16 tokens before it; to compute that page again takes one
  // page more of the windows.
  const std::vector<int32_t> to = {400, 400, 336};
  const std::vector<int32_t> from = {0, kText, 304};
  for (size_t i = 0; i < specs.size(); ++i) {
    const Answer answer = Ask(*engine, specs[i]);
    EXPECT_EQ(answer, expected[i]) << i;
    EXPECT_EQ(answer.usage.cached_tokens, to[i]) << i;
    EXPECT_EQ(answer.usage.restored_tokens, to[i] - from[i]) << i;
    EXPECT_EQ(answer.usage.checked_position, to[i] - kPage) << i;
  }
  EXPECT_EQ(Metric(*engine, "kv_tier_hits_total"), 400 + 80 + 32);
  EXPECT_EQ(Metric(*engine, "kv_tier_mismatches_total"), 0);
}

// Of a long text, memory has the first pages on one rank, which lacks room for all of it: it comes
// back whole, to more ranks.
TEST_F(PageTierTest, ARankWithTheFirstPagesMayLackRoomForTheOthers) {
  constexpr int kText = 800;
  EngineOptions options = Options(testing::WithWindows(folder_, /*slow=*/true), 2);
  const std::vector<int32_t> text = Prompt(kText, 250);
  Answer expected;
  {
    const auto engine = Make(options);
    expected = Ask(*engine, Spec(text));
    ASSERT_TRUE(WaitForWrites(*engine));
    // A rank has 70 pages. Alone it needs 51 for the layers without windows, and 34 for the others.
    const auto page_bytes = static_cast<size_t>(engine->model().kv_bytes_per_token) * kPage;
    options.kv_memory_bytes = 2 * 70 * page_bytes;
  }
  const auto engine = Make(options);
  Ask(*engine, Spec({text.begin(), text.begin() + 50}));
  const Answer answer = Ask(*engine, Spec(text));
  EXPECT_EQ(answer, expected);
  EXPECT_EQ(answer.usage.restored_tokens, kText - kPage);
}

// The same if that rank has room, but would take longer for what is left to compute than two ranks
// for that and the first pages, read again.
TEST_F(PageTierTest, ALongTextDoesNotStayOnTheRankThatHasItsFirstPages) {
  constexpr int kText = 800;
  constexpr int kFirst = 48;
  const EngineOptions options = Options(testing::WithWindows(folder_, /*slow=*/true), 2);
  const std::vector<int32_t> text = Prompt(kText, 250);
  for (const int tokens : {12, 100}) {
    RequestSpec spec = Spec(text);
    spec.sampling.max_tokens = tokens;
    Answer expected;
    {
      const auto engine = Make(options);
      expected = Ask(*engine, spec);
      ASSERT_TRUE(WaitForWrites(*engine));
    }
    const auto engine = Make(options);
    Ask(*engine, Spec({text.begin(), text.begin() + kFirst + 2}));
    const Answer answer = Ask(*engine, spec);
    EXPECT_EQ(answer, expected);
    EXPECT_EQ(answer.usage.restored_tokens, kText - kPage - (tokens == 12 ? kFirst : 0)) << tokens;
  }
}

// A document that is deleted takes what follows it along, and no more.
TEST_F(PageTierTest, ADeletedDocumentLeavesTheDisk) {
  const EngineOptions options = Options(WithoutWindows(folder_), 1);
  RequestSpec spec = Spec(Prompt(320, 250));
  spec.documents = {{100, "first"}, {200, "second"}};
  {
    const auto engine = Make(options);
    Ask(*engine, spec);
    ASSERT_TRUE(WaitForPages(*engine, 20));
    EXPECT_TRUE(engine->ForgetDocument(TenantId(), "another", CancelFlag::Never()).ok());
    EXPECT_TRUE(
        engine->ForgetDocument(*TenantId::FromName("stranger"), "first", CancelFlag::Never()).ok());
    EXPECT_EQ(Files().size(), 20u);
    EXPECT_TRUE(engine->ForgetDocument(TenantId(), "second", CancelFlag::Never()).ok());
    EXPECT_EQ(Files().size(), 12u);  // 192 tokens
  }
  const auto engine = Make(options);
  EXPECT_EQ(Ask(*engine, spec).usage.restored_tokens, 192);
  ASSERT_TRUE(WaitForPages(*engine, 20)) << "it was sent again";
  EXPECT_TRUE(engine->ForgetDocument(TenantId(), "first", CancelFlag::Never()).ok());
  EXPECT_EQ(Files().size(), 6u);
}

// Nor does a request that was reading it write any more of it.
TEST_F(PageTierTest, ADocumentThatIsDeletedWhileItIsReadLeavesNothing) {
  RequestSpec spec = Spec(Prompt(kThreadSanitizer ? 1000 : 2000, 250));
  spec.documents = {{0, "text"}};
  const auto engine = Make(Options(testing::SlowToCompute(folder_), 1));
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine->Submit(spec, sink).ok());
  ASSERT_TRUE(WaitForPages(*engine, 20));
  EXPECT_TRUE(engine->ForgetDocument(TenantId(), "text", CancelFlag::Never()).ok());
  ASSERT_TRUE(sink->Wait().has_value() && sink->Wait()->status.ok());
  // Another text is written behind what it left.
  Ask(*engine, Spec(Prompt(33, 250, 5)));
  ASSERT_TRUE(WaitForPages(*engine, 2));
  EXPECT_EQ(Files().size(), 2u);
}

TEST_F(PageTierTest, ManyAtOnceRestoreOrWait) {
  const EngineOptions options = Options("builtin:recall", 2);
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < 6; ++i) prompts.push_back(Prompt(150 + 16 * i, 250, 20 + i));
  std::vector<Answer> expected;
  {
    const auto engine = Make(options);
    int pages = 0;
    for (const auto& prompt : prompts) {
      expected.push_back(Ask(*engine, Spec(prompt)));
      pages += static_cast<int>(prompt.size()) / kPage;
    }
    ASSERT_TRUE(WaitForPages(*engine, pages) && WaitForWrites(*engine));
  }
  const auto engine = Make(options);
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (int turn = 0; turn < 3; ++turn) {
    for (const auto& prompt : prompts) {
      sinks.push_back(std::make_shared<CollectingSink>());
      ASSERT_TRUE(engine->Submit(Spec(prompt), sinks.back()).ok());
    }
  }
  for (size_t i = 0; i < sinks.size(); ++i) {
    const auto done = sinks[i]->Wait();
    ASSERT_TRUE(done.has_value() && done->status.ok()) << i;
    EXPECT_EQ(sinks[i]->ids(), expected[i % prompts.size()].ids) << i;
  }
  EXPECT_GT(Metric(*engine, "kv_tier_hits_total"), 0);
}

TEST_F(PageTierTest, WhatCannotBeIsRefusedAtTheStart) {
  EngineOptions options = Options("builtin:recall", 1);
  options.kv_disk_bytes = 0;
  auto engine = CreateEngine(options, *backend_, registry_);
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("kv-disk-size is 0 bytes"));
  options = Options("builtin:recall", 1);
  const auto first = Make(options);
  engine = CreateEngine(options, *backend_, registry_);
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("another daemon"));
}

}  // namespace
}  // namespace annulus
