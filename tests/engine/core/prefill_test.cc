// Prompts that are read ahead: what is kept, what it costs, and that answers do not change.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/demo/document.h"
#include "engine/engine_seams.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/eventually.h"
#include "tests/support/plain_options.h"

namespace annulus {
namespace {

using testing::CollectingSink;
using testing::Eventually;  // what the engine says of itself is as of its last turn

constexpr int kPage = 64;
// Its end, a question and the answer fit into two pages.
constexpr int64_t kDocumentBytes = (kSanitized ? 32 : 78) * kPage + 8;
// Far more than is computed before a cancel.
constexpr int64_t kLongBytes = kSanitized ? 15'000 : 60'000;

class PrefillTest : public ::testing::TestWithParam<int> {
 protected:
  PrefillTest() : backend_(CreateCpuBackend().value()) {
    RegisterCpuKernels(registry_);
    bench::DemoOptions options;
    options.bytes = kDocumentBytes;
    document_ = bench::MakeDemoDocument(options).value();
    EngineOptions engine = testing::PlainOptions();
    engine.ranks = GetParam();
    engine.threads = GetParam();
    engine.kv_memory_bytes = 192 << 20;
    engine.page_tokens = kPage;
    engine.chunk_tokens = 512;
    engine.tokens_per_rank = 1024;
    engine_ = CreateEngineWith({.through_bytes = true}, engine, *backend_, registry_).value();
    kept_ = static_cast<int64_t>(document_.text.size()) / kPage * kPage;
  }

  RequestSpec Spec(const std::string& text) const {
    RequestSpec spec;
    spec.prompt = engine_->Tokenize(text, true, CancelFlag::Never()).value();
    spec.sampling.temperature = 0;
    spec.sampling.max_tokens = 16;
    return spec;
  }

  RequestSpec Ahead(const std::string& text) const {
    RequestSpec spec = Spec(text);
    spec.shared_prefixes = {static_cast<int32_t>(spec.prompt.size())};
    spec.prefill_only = true;
    return spec;
  }

  struct Ended {
    Completion completion;
    std::vector<int32_t> ids;
    size_t progress = 0;
  };
  Ended Run(RequestSpec spec) {
    const auto sink = std::make_shared<CollectingSink>();
    const auto id = engine_->Submit(std::move(spec), sink);
    EXPECT_TRUE(id.ok()) << id.status();
    const auto completion = sink->Wait();
    EXPECT_TRUE(completion.has_value());
    EXPECT_EQ(sink->done_calls(), 1);
    return {completion.value_or(Completion()), sink->ids(), sink->progress().size()};
  }

  // Pages of the kind, of all ranks.
  int64_t Pages(const std::string& kind) const {
    int64_t bytes = 0;
    for (const RankLoad& rank : engine_->Load().ranks) bytes += rank.memory_bytes.at(kind);
    return bytes / (engine_->model().kv_bytes_per_token * kPage);
  }

  const std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
  bench::DemoDocument document_;
  int64_t kept_ = 0;  // tokens of the document in whole pages
  std::unique_ptr<Engine> engine_;
};

TEST_P(PrefillTest, KeepsWholePagesAndGeneratesNothing) {
  const bench::DemoFact& fact = document_.facts.front();
  const Ended before = Run(Spec(document_.text + fact.cue));
  EXPECT_EQ(before.completion.usage.cached_tokens, 0);

  // Other text in front, so nothing of it is there.
  const Ended other = Run(Ahead("x" + document_.text));
  EXPECT_TRUE(other.completion.status.ok()) << other.completion.status;
  EXPECT_EQ(other.completion.finish_reason, FinishReason::kPrefilled);
  EXPECT_TRUE(other.ids.empty());
  EXPECT_GT(other.progress, 0u);
  EXPECT_EQ(other.completion.usage.prompt_tokens, kept_);
  EXPECT_EQ(other.completion.usage.cached_tokens, 0);
  EXPECT_EQ(other.completion.usage.completion_tokens, 0);
  EXPECT_GT(other.completion.timings.prefill, 0);

  const Ended after = Run(Spec("x" + document_.text + fact.cue));
  EXPECT_EQ(after.completion.usage.cached_tokens, kept_);
  EXPECT_EQ(after.ids, before.ids);
}

TEST_P(PrefillTest, WhatIsThereIsNotReadAgain) {
  Run(Ahead(document_.text));
  const Ended again = Run(Ahead(document_.text));
  EXPECT_EQ(again.completion.finish_reason, FinishReason::kPrefilled);
  EXPECT_EQ(again.completion.usage.prompt_tokens, kept_);
  EXPECT_EQ(again.completion.usage.cached_tokens, kept_);
  EXPECT_EQ(again.progress, 0u);
  // For another tenant it is not there.
  RequestSpec theirs = Ahead(document_.text);
  theirs.tenant = *TenantId::FromName("them");
  EXPECT_EQ(Run(std::move(theirs)).completion.usage.cached_tokens, 0);
  // A longer document goes on where the shorter one ends.
  const Ended longer = Run(Ahead(document_.text + document_.text));
  EXPECT_EQ(longer.completion.usage.cached_tokens, kept_);
}

TEST_P(PrefillTest, TextShorterThanAPageLeavesNothing) {
  const Ended ended = Run(Ahead("short"));
  EXPECT_TRUE(ended.completion.status.ok());
  EXPECT_EQ(ended.completion.finish_reason, FinishReason::kPrefilled);
  EXPECT_EQ(ended.completion.usage.prompt_tokens, 0);
  EXPECT_EQ(Pages("kv_cached"), 0);
}

TEST_P(PrefillTest, BadInputIsRefusedAsForOtherRequests) {
  RequestSpec empty = Ahead("x");
  empty.prompt.clear();
  empty.shared_prefixes.clear();
  EXPECT_EQ(engine_->Submit(empty, std::make_shared<CollectingSink>()).status().code(),
            absl::StatusCode::kInvalidArgument);
  RequestSpec strange = Ahead(document_.text);
  strange.prompt.back() = -1;  // in what is cut off, too
  EXPECT_EQ(engine_->Submit(strange, std::make_shared<CollectingSink>()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(PrefillTest, QuestionsAddTheirOwnPagesOnly) {
  Run(Ahead(document_.text));
  EXPECT_TRUE(Eventually([&] { return Pages("kv_cached") >= kept_ / kPage; }));
  const auto used = [&] { return Pages("kv_full") + Pages("kv_window") + Pages("kv_reserved"); };
  constexpr int kQuestions = 6;
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  std::vector<RequestId> ids;
  for (int i = 0; i < kQuestions; ++i) {
    sinks.push_back(std::make_shared<CollectingSink>());
    sinks.back()->set_full_after(1);
    RequestSpec spec = Spec(document_.text + std::to_string(i) + " is the number");
    // The end of the document, the question and the answer in one page.
    spec.sampling.max_tokens = 2;
    spec.sampling.min_tokens = 2;
    const auto own = static_cast<int64_t>(spec.prompt.size()) + 2 - kept_;
    ASSERT_LE(own, 2 * kPage);
    ids.push_back(engine_->Submit(std::move(spec), sinks.back()).value());
  }
  for (const auto& sink : sinks) ASSERT_TRUE(sink->WaitTokens(1));
  // Their readers are behind, so each holds what it has: beside the document two pages at most.
  EXPECT_TRUE(Eventually([&] { return used() >= kQuestions && used() <= 2 * kQuestions; }))
      << used();
  for (const auto& sink : sinks) sink->set_has_room(true);
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->Wait()->usage.cached_tokens, kept_);
  }
}

TEST_P(PrefillTest, ACancelledOneGoesOnWhereItStood) {
  bench::DemoOptions options;
  options.bytes = kLongBytes;
  const std::string text = bench::MakeDemoDocument(options).value().text;
  const auto sink = std::make_shared<CollectingSink>();
  const RequestId id = engine_->Submit(Ahead(text), sink).value();
  ASSERT_TRUE(sink->WaitProgress(1));
  engine_->Cancel(id);
  const Completion cancelled = *sink->Wait();
  if (cancelled.status.ok()) GTEST_SKIP() << "it ended before it was cancelled";
  EXPECT_EQ(cancelled.finish_reason, FinishReason::kCancelled);
  const Ended next = Run(Ahead(text));
  EXPECT_GT(next.completion.usage.cached_tokens, 0);
  EXPECT_EQ(next.completion.usage.prompt_tokens, std::ssize(text) / kPage * kPage);
}

INSTANTIATE_TEST_SUITE_P(Ranks, PrefillTest, ::testing::Values(1, 3));

}  // namespace
}  // namespace annulus
