// Two tenants share an engine over simulated ranks. Whatever they ask, and however their calls
// interleave, each is told what it would be told alone, and no page that another one wrote is read
// for it. And what a tenant may have of the ranks' pages: TenantRoom.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/error_payloads.h"
#include "engine/coordinator/coordinator.h"
#include "engine/text/tokenizer.h"
#include "kernels/base/sanitizers.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/plain_options.h"
#include "tests/support/simulated_ranks.h"

namespace annulus::testing {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kSharedPageTokens = 16;
constexpr int32_t kSharedPages = 6000;
constexpr int64_t kSharedPageBytes = 4096;  // of SimulatedRanks

TenantId Named(const std::string& name) { return TenantId::FromName(name).value(); }

// What stands in each place of each page: whose token. Follows the plans as ranks do.
class PageMarkers {
 public:
  void SetOwner(RequestId id, const TenantId& tenant) {
    std::lock_guard lock(mutex_);
    owners_[id] = tenant.name();
  }
  // Rows of a request that were computed.
  int64_t RowsOf(RequestId id) const {
    std::lock_guard lock(mutex_);
    const auto found = rows_.find(id);
    return found == rows_.end() ? 0 : found->second;
  }
  // Places of pages that were read, and of these those that another tenant's request wrote.
  int64_t read() const {
    std::lock_guard lock(mutex_);
    return read_;
  }
  int64_t foreign() const {
    std::lock_guard lock(mutex_);
    return foreign_;
  }

  void Follow(const StepPlan& plan) {
    std::lock_guard lock(mutex_);
    for (const SequenceId id : plan.ended) tables_.erase(id);
    for (const SequenceUpdate& update : plan.updates) {
      std::vector<PageEntry>& table = tables_[update.sequence];
      for (const TableDelta& delta : update.tables) {
        table.erase(table.begin(), table.begin() + delta.drop_front);
        table.insert(table.end(), delta.append.begin(), delta.append.end());
      }
    }
    for (const PlanItem& item : plan.items) {
      const std::string& owner = owners_.at(item.sequence);
      for (int32_t row = item.begin; row < item.end; ++row) PlaceOf(item.sequence, row) = owner;
      rows_[item.sequence] += item.end - item.begin;
    }
    // All before an item's rows is read for it, rows of the same step too.
    for (const PlanItem& item : plan.items) {
      for (int32_t position = 0; position < item.begin; ++position) {
        foreign_ += PlaceOf(item.sequence, position) != owners_.at(item.sequence);
        ++read_;
      }
    }
  }

 private:
  std::string& PlaceOf(SequenceId id, int32_t position) {
    const PageEntry& entry = tables_.at(id).at(position / kSharedPageTokens);
    return places_[{entry.page, position % kSharedPageTokens}];
  }

  mutable std::mutex mutex_;
  std::map<RequestId, std::string> owners_;
  std::map<SequenceId, std::vector<PageEntry>> tables_;
  std::map<std::pair<int32_t, int32_t>, std::string> places_;
  std::map<RequestId, int64_t> rows_;
  int64_t read_ = 0;
  int64_t foreign_ = 0;
};

class SharedEngine {
 public:
  SharedEngine() {
    CoordinatorOptions options;
    options.engine = PlainOptions();
    options.limits.page_tokens = kSharedPageTokens;
    options.limits.prefill_rows_per_rank = kSharedPageTokens;
    options.limits.group_windows = {0};
    options.modes.mode = RingMode::kPassKv;
    options.identity = "simulated";
    coordinator_ = std::make_unique<Coordinator>(options, ranks_, metrics_, Clock::Real(),
                                                 std::vector<int32_t>{256}, 257);
  }
  ~SharedEngine() {
    ranks_.Allow();  // whatever a test left held
    coordinator_.reset();
    EXPECT_EQ(markers_.foreign(), 0) << "a foreign page was read";
  }

  struct Asked {
    RequestId id = 0;
    std::shared_ptr<CollectingSink> sink = std::make_shared<CollectingSink>();
  };
  Asked Ask(RequestSpec spec) {
    Asked asked;
    asked.id = next_id_++;
    markers_.SetOwner(asked.id, spec.tenant);
    spec.sampling.seed = 1;
    EXPECT_TRUE(coordinator_
                    ->Submit(std::make_unique<Request>(asked.id, std::move(spec), asked.sink,
                                                       *tokenizer_, Clock::Real()))
                    .ok());
    return asked;
  }
  absl::Status Outcome(const Asked& asked) {
    const auto done = asked.sink->Wait();
    return done.has_value() ? done->status : absl::InternalError("no end");
  }

  Coordinator& coordinator() { return *coordinator_; }
  SimulatedRanks& ranks() { return ranks_; }
  const PageMarkers& markers() const { return markers_; }

 private:
  PageMarkers markers_;
  SimulatedRanks ranks_{{.ranks = 1,
                         .pages = kSharedPages,
                         .page_tokens = kSharedPageTokens,
                         .on_start = [this](const StepPlan& plan) { markers_.Follow(plan); }}};
  EngineMetrics metrics_{1, ModelInfo()};
  std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  RequestId next_id_ = 1;
  std::unique_ptr<Coordinator> coordinator_;
};

// ---- interleavings

enum class Kind : uint8_t { kGenerate, kPlan, kFind, kForget };
constexpr int kKinds = 4;
constexpr int kTexts = 4;  // of few, so that both tenants send the same ones
constexpr int kCallsOfEach = 3;

struct Call {
  Kind kind = Kind::kGenerate;
  int text = 0;
  friend auto operator<=>(const Call&, const Call&) = default;
};

std::string DocumentOf(int text) { return absl::StrCat("document ", text); }

// Texts 0 and 1 begin with the same two pages, 2 with one of them, 3 with none.
std::vector<int32_t> PromptOf(int text) {
  std::vector<int32_t> prompt(kSharedPageTokens * 3 + 5, 'a');
  const int32_t from = text <= 1 ? 2 * kSharedPageTokens : text == 2 ? kSharedPageTokens : 0;
  for (size_t i = from; i < prompt.size(); ++i) prompt[i] = 'b' + text;
  return prompt;
}

// One tenant of an engine. What it is told is all that it can see: answers, counts, lists, plans,
// and for times the work that was done for it.
class Caller {
 public:
  Caller(SharedEngine& engine, std::string tenant)
      : engine_(engine), tenant_(Named(std::move(tenant))) {}

  // Begins the call once the one before has ended.
  void Do(const Call& call) {
    End();
    switch (call.kind) {
      case Kind::kGenerate:
        running_ = engine_.Ask(SpecOf(call.text));
        return;
      case Kind::kPlan: {
        const auto plan = engine_.coordinator().Plan(SpecOf(call.text), CancelFlag::Never());
        ASSERT_TRUE(plan.ok()) << plan.status();
        int64_t bytes = 0;
        for (const RankPlan& rank : plan->ranks) bytes += rank.cached_bytes;
        return Told("plan ", plan->cached_tokens, " ", bytes, " ", static_cast<int>(plan->room));
      }
      case Kind::kFind:
        return Told("document ", TokensKept(call.text));
      case Kind::kForget:
        engine_.coordinator().ForgetDocument(TagOf(tenant_, DocumentOf(call.text)));
        // The engine's thread does it before its next step.
        while (TokensKept(call.text) > 0) std::this_thread::yield();
        return Told("forgotten");
    }
  }
  void End() {
    if (!running_.has_value()) return;
    const auto done = running_->sink->Wait();
    ASSERT_TRUE(done.has_value() && done->status.ok());
    Told("answer ", running_->sink->text(), " ", done->usage.cached_tokens, " of ",
         done->usage.prompt_tokens, ", rows ", engine_.markers().RowsOf(running_->id));
    if (const auto& miss = done->usage.cache_miss) {
      Told("miss ", static_cast<int>(miss->reason), " ", miss->position);
    }
    running_.reset();
  }
  const std::string& told() const { return told_; }

 private:
  RequestSpec SpecOf(int text) const {
    RequestSpec spec;
    spec.tenant = tenant_;
    spec.prompt = PromptOf(text);
    spec.documents = {{0, DocumentOf(text)}};
    spec.sampling.max_tokens = 2;
    return spec;
  }
  int64_t TokensKept(int text) const {
    return engine_.coordinator().FindDocument(TagOf(tenant_, DocumentOf(text))).memory_tokens;
  }
  template <typename... Parts>
  void Told(const Parts&... parts) {
    absl::StrAppend(&told_, parts..., "\n");
  }

  SharedEngine& engine_;
  const TenantId tenant_;
  std::optional<SharedEngine::Asked> running_;
  std::string told_;
};

using Calls = std::array<Call, kCallsOfEach>;

std::string ToldAlone(const Calls& calls) {
  static std::map<Calls, std::string>& known = *new std::map<Calls, std::string>;
  const auto [found, is_new] = known.try_emplace(calls);
  if (is_new) {
    SharedEngine engine;
    Caller caller(engine, "alone");
    for (const Call& call : calls) caller.Do(call);
    caller.End();
    found->second = caller.told();
  }
  return found->second;
}

int Interleavings() {
  const char* value = std::getenv("ANNULUS_INTERLEAVINGS");
  if (value != nullptr) return std::atoi(value);
  return kSanitized ? 200 : 2'000;
}

TEST(TenantIsolationTest, EachIsToldWhatItWouldBeToldAlone) {
  constexpr int kOfAnEngine = 100;  // so that many tenants have left the same texts
  constexpr int kTenants = 2;
  std::minstd_rand random(27);
  const auto below = [&](unsigned most) { return static_cast<int>(random() / 7 % most); };
  std::unique_ptr<SharedEngine> engine;
  int64_t read = 0;
  int64_t hits = 0;
  for (int i = 0; i < Interleavings() && !::testing::Test::HasFailure(); ++i) {
    if (i % kOfAnEngine == 0) {
      if (engine != nullptr) read += engine->markers().read();
      engine = std::make_unique<SharedEngine>();
    }
    std::array<Calls, kTenants> calls;
    for (Calls& own : calls) {
      for (Call& call : own) {
        const int kind = below(2 * kKinds);  // half of all generate
        call = {kind < kKinds ? static_cast<Kind>(kind) : Kind::kGenerate, below(kTexts)};
      }
    }
    std::array<Caller, kTenants> callers = {Caller(*engine, absl::StrCat("a", i)),
                                            Caller(*engine, absl::StrCat("b", i))};
    std::array<size_t, kTenants> next = {};
    while (next[0] < kCallsOfEach || next[1] < kCallsOfEach) {
      const size_t tenant = next[0] == kCallsOfEach   ? 1
                            : next[1] == kCallsOfEach ? 0
                                                      : below(kTenants);
      callers[tenant].Do(calls[tenant][next[tenant]++]);
    }
    for (size_t tenant = 0; tenant < kTenants; ++tenant) {
      callers[tenant].End();
      EXPECT_EQ(callers[tenant].told(), ToldAlone(calls[tenant])) << "interleaving " << i;
      hits += callers[tenant].told().find(" 32 of 53") != std::string::npos;
    }
  }
  read += engine->markers().read();
  EXPECT_GT(read, Interleavings()) << "hardly any page was read, so little was tried";
  EXPECT_GT(hits, Interleavings() / 50) << "hardly anything was reused, so little was tried";
}

// The time of a prefix: nobody waits for what another tenant computes just now.
TEST(TenantIsolationTest, NobodyWaitsForAnothersPrefix) {
  SharedEngine engine;
  engine.ranks().HoldSteps();
  RequestSpec spec;
  spec.tenant = Named("a");
  spec.prompt.assign(kSharedPageTokens * 8, 'x');
  spec.sampling.max_tokens = 1;
  const auto first = engine.Ask(spec);
  ASSERT_TRUE(engine.ranks().WaitBegun(1));
  const auto own = engine.Ask(spec);
  spec.tenant = Named("b");
  const auto other = engine.Ask(spec);
  engine.ranks().Allow();
  for (const auto& asked : {first, own, other}) EXPECT_TRUE(engine.Outcome(asked).ok());
  EXPECT_EQ(engine.markers().RowsOf(other.id), kSharedPageTokens * 8);
  EXPECT_LT(engine.markers().RowsOf(own.id), kSharedPageTokens * 8) << "one's own is waited for";
  // The other one's rows begin before the first has ended.
  size_t begun = 0;
  size_t ended = 0;
  const std::vector<StepPlan> plans = engine.ranks().plans();
  for (size_t i = 0; i < plans.size(); ++i) {
    for (const PlanItem& item : plans[i].items) {
      if (item.sequence == other.id && begun == 0) begun = i;
      if (item.sequence == first.id) ended = i;
    }
  }
  EXPECT_LT(begun, ended);
}

// ---- room

class TenantRoomTest : public ::testing::Test {
 protected:
  static constexpr int64_t kPagesOfTenant = 8;

  // Takes `pages` pages.
  static RequestSpec Spec(const std::string& tenant, int pages, int32_t first) {
    RequestSpec spec;
    spec.tenant = Named(tenant);
    spec.tenant_room.kv_bytes = kPagesOfTenant * kSharedPageBytes;
    spec.prompt.assign(static_cast<size_t>(pages) * kSharedPageTokens - 4, 'x');
    spec.prompt[0] = first;
    spec.sampling.max_tokens = 4;
    return spec;
  }
  int64_t PagesTaken() {
    int64_t taken = 0;
    for (const PageCounts& rank : engine_.coordinator().snapshot().pages) {
      taken += rank.total() - rank.free;
    }
    return taken;
  }

  SharedEngine engine_;
};

TEST_F(TenantRoomTest, IsRefusedWithWhenToComeBackWhileItsOwnRequestsRun) {
  engine_.ranks().HoldSteps();
  const auto running = engine_.Ask(Spec("a", 6, 'a'));
  ASSERT_TRUE(engine_.ranks().WaitBegun(1));
  const auto more = engine_.Ask(Spec("a", 3, 'b'));
  const auto others = engine_.Ask(Spec("b", 6, 'c'));
  const auto fits = engine_.Ask(Spec("a", 2, 'd'));
  engine_.ranks().Allow();
  const absl::Status refused = engine_.Outcome(more);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.GetPayload(kLimitPayload), absl::Cord("kv_bytes"));
  EXPECT_TRUE(refused.GetPayload(kRetryPayload).has_value());
  EXPECT_THAT(std::string(refused.message()), HasSubstr("needs 12288 bytes"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("is allowed 32768, of which 24576"));
  for (const auto& asked : {running, others, fits}) EXPECT_TRUE(engine_.Outcome(asked).ok());
  EXPECT_TRUE(engine_.Outcome(engine_.Ask(Spec("a", 3, 'b'))).ok()) << "what it had makes room";
}

TEST_F(TenantRoomTest, ItsOwnCachedPagesMakeRoomAndOthersStay) {
  for (const char* tenant : {"b", "a"}) {
    EXPECT_TRUE(engine_.Outcome(engine_.Ask(Spec(tenant, 5, 'a'))).ok());
  }
  for (const char first : {'b', 'c', 'd'}) {
    EXPECT_TRUE(engine_.Outcome(engine_.Ask(Spec("a", 6, first))).ok());
    EXPECT_LE(PagesTaken(), 5 + kPagesOfTenant);
  }
  const auto cached = [&](const std::string& tenant) {
    const auto asked = engine_.Ask(Spec(tenant, 5, 'a'));
    return asked.sink->Wait().value_or(Completion()).usage.cached_tokens;
  };
  EXPECT_EQ(cached("b"), 4 * kSharedPageTokens);
  EXPECT_EQ(cached("a"), 0);
}

TEST_F(TenantRoomTest, WhatNeverFitsIsNotToComeBack) {
  const absl::Status refused = engine_.Outcome(engine_.Ask(Spec("a", 9, 'a')));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(refused.GetPayload(kRetryPayload).has_value());
  EXPECT_THAT(std::string(refused.message()), HasSubstr("lower max_tokens"));
}

TEST_F(TenantRoomTest, APlanSaysThatThereIsRoomLater) {
  engine_.ranks().HoldSteps();
  const auto running = engine_.Ask(Spec("a", 6, 'a'));
  ASSERT_TRUE(engine_.ranks().WaitBegun(1));
  std::optional<RoomFor> own;
  std::optional<RoomFor> others;
  std::thread asks([&] {
    own = engine_.coordinator().Plan(Spec("a", 3, 'b'), CancelFlag::Never()).value().room;
    others = engine_.coordinator().Plan(Spec("b", 3, 'b'), CancelFlag::Never()).value().room;
    engine_.ranks().Allow();
  });
  // The reader stands still, so the request keeps its pages.
  running.sink->set_has_room(false);
  engine_.ranks().Allow(2);
  asks.join();
  EXPECT_EQ(own, RoomFor::kLater);
  EXPECT_EQ(others, RoomFor::kNow);
  running.sink->set_has_room(true);
  EXPECT_TRUE(engine_.Outcome(running).ok());
}

}  // namespace
}  // namespace annulus::testing
