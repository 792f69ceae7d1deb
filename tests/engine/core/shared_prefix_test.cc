// What requests share of their beginnings, and what is kept of those that have ended.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "bench/demo/document.h"
#include "engine/api.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/core/engine_fixture.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/eventually.h"

namespace annulus {
namespace {

using testing::CollectingSink;

class SharedPrefixTest : public testing::EngineFixture {};

// Questions about one document share its keys and values; the answer has the same bits.
TEST_F(SharedPrefixTest, ASharedPrefixIsComputedOnce) {
  constexpr int kBytes = kSanitized ? 2000 : 6000;
  const bench::DemoDocument document = Document(kBytes, 5);
  for (const int ranks : {1, 3}) {
    auto engine = Make(Options(ranks));
    const auto ask = [&](const bench::DemoFact& fact) {
      RequestSpec spec = Spec(*engine, document.text + fact.cue);
      spec.shared_prefixes = {kBytes};
      spec.sampling.stop = {"\n"};
      spec.sampling.logprobs = 2;
      auto sink = Start(*engine, std::move(spec));
      EXPECT_TRUE(sink->Wait()->status.ok());
      EXPECT_EQ(sink->text(), fact.answer);
      return sink;
    };
    const auto first = ask(document.facts[0]);
    EXPECT_EQ(first->Wait()->usage.cached_tokens, 0);
    // Another cue: what is shared ends with the last whole page of the document.
    EXPECT_EQ(ask(document.facts[1])->Wait()->usage.cached_tokens, kBytes / 64 * 64);
    // The same cue again: what is shared ends with the last whole page of the prompt.
    const auto again = ask(document.facts[0]);
    EXPECT_GT(again->Wait()->usage.cached_tokens, kBytes);
    ASSERT_EQ(again->logprobs().size(), first->logprobs().size());
    for (size_t i = 0; i < again->logprobs().size(); ++i) {
      EXPECT_EQ(again->logprobs()[i].logprob, first->logprobs()[i].logprob);
      EXPECT_EQ(again->logprobs()[i].alternatives, first->logprobs()[i].alternatives);
    }
    EXPECT_EQ(PagesHeldSoon(*engine), 0);
    EXPECT_GT(engine->Load().ranks[0].memory_bytes.at("kv_cached"), 0);
  }
}

// Hits are a tenant's own: another one's look like a prompt that nobody ever sent, in every figure.
TEST_F(SharedPrefixTest, NothingIsSharedBetweenTenants) {
  const bench::DemoDocument document = Document(3000, 11);
  for (const bool policy : {false, true}) {
    auto engine = Make(Options(2));
    const auto ask = [&](const TenantId& tenant) {
      RequestSpec spec = Spec(*engine, document.text + document.facts[0].cue, 4);
      spec.tenant = tenant;
      spec.shared_prefixes = {3000};
      spec.sampling.logprobs = 2;
      if (policy) spec.attention = AttentionPolicy{.kind = PolicyKind::kAdaptive};
      auto sink = Start(*engine, std::move(spec));
      EXPECT_TRUE(sink->Wait()->status.ok()) << sink->Wait()->status;
      return sink;
    };
    const TenantId a = TenantId::FromName("a").value();
    const TenantId b = TenantId::FromName("b").value();
    const auto first = ask(a);
    EXPECT_EQ(first->Wait()->usage.cached_tokens, 0);
    for (const TenantId& other : {b, TenantId()}) {
      const auto answer = ask(other);
      EXPECT_EQ(answer->Wait()->usage.cached_tokens, 0) << other.name();
      EXPECT_EQ(answer->progress().front().cached, 0) << other.name();
      EXPECT_EQ(answer->Wait()->attention.inherited_coverage, std::nullopt) << other.name();
      EXPECT_EQ(answer->ids(), first->ids()) << other.name();
    }
    for (const TenantId& same : {a, b}) {
      EXPECT_GE(ask(same)->Wait()->usage.cached_tokens, 3000 / 64 * 64) << same.name();
    }
  }
}

// A checkpoint far before the end: the windows' pages in between must come back to the sequence.
TEST_F(SharedPrefixTest, CheckpointsTakeNoMoreThanTheirWindow) {
  EngineOptions options = Options(1);
  options.chunk_tokens = 2048;
  auto engine = Make(options);
  RequestSpec spec = Spec(*engine, std::string(12'600, 'x'), 16);
  spec.shared_prefixes = {3000, 6000, 6001, 10'000};
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_TRUE(Start(*engine, spec)->Wait()->status.ok());
  }
  EXPECT_EQ(PagesHeldSoon(*engine), 0);
}

// With room for one document only, each new one takes the pages of the one before.
TEST_F(SharedPrefixTest, CachedPrefixesMakeRoom) {
  EngineOptions options = Options(2);
  options.kv_memory_bytes = kSanitized ? 4 << 20 : 8 << 20;
  auto engine = Make(options);
  const int64_t total =
      engine->Load().ranks[0].kv_bytes_total + engine->Load().ranks[1].kv_bytes_total;
  const int64_t tokens = total / engine->model().kv_bytes_per_token * 2 / 3;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const bench::DemoDocument document = Document(tokens, seed);
    RequestSpec spec = Spec(*engine, document.text + document.facts[0].cue);
    spec.shared_prefixes = {static_cast<int32_t>(tokens)};
    spec.sampling.stop = {"\n"};
    auto sink = Start(*engine, std::move(spec));
    ASSERT_TRUE(sink->Wait()->status.ok()) << sink->Wait()->status;
    EXPECT_EQ(sink->text(), document.facts[0].answer);
  }
  EXPECT_EQ(PagesHeldSoon(*engine), 0);
}

// A request that must wait for a running one costs no cached prefix, least of all its own.
TEST_F(SharedPrefixTest, WaitingForRoomKeepsThePrefixThatTheRequestWillReuse) {
  EngineOptions options = Options(1);
  options.kv_memory_bytes = 32 << 20;
  auto engine = Make(options);
  const int64_t room = engine->Load().ranks[0].kv_bytes_total / engine->model().kv_bytes_per_token;
  const bench::DemoDocument document = Document(room * 3 / 10, 5);
  RequestSpec first = Spec(*engine, document.text, 1);
  first.shared_prefixes = {static_cast<int32_t>(std::ssize(first.prompt))};
  ASSERT_TRUE(Start(*engine, std::move(first))->Wait()->status.ok());
  // Two fifths of the room for one that does not end by itself.
  auto holder = std::make_shared<CollectingSink>();
  holder->set_has_room(false);
  const auto held = engine->Submit(Spec(*engine, "x", static_cast<int>(room * 2 / 5)), holder);
  ASSERT_TRUE(held.ok()) << held.status();
  ASSERT_TRUE(testing::Eventually([&] { return engine->Load().running > 0; }));
  // Beside the prefix it needs two fifths, and three tenths are free. Giving the prefix back would
  // not help.
  RequestSpec waits =
      Spec(*engine, document.text + document.facts[0].cue, static_cast<int>(room * 2 / 5));
  waits.sampling.stop = {"\n"};
  auto sink = Start(*engine, std::move(waits));
  ASSERT_FALSE(sink->Wait(0.3).has_value());
  engine->Cancel(*held);
  ASSERT_TRUE(holder->Wait().has_value());
  const auto done = sink->Wait();
  ASSERT_TRUE(done.has_value() && done->status.ok());
  EXPECT_EQ(sink->text(), document.facts[0].answer);
  EXPECT_EQ(done->usage.cached_tokens, std::ssize(document.text) / 64 * 64);
}

}  // namespace
}  // namespace annulus
