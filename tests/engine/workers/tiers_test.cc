// Pages that leave the memory of ranks at workers stay in the host memory of these workers, and
// come back with the same bits. Workers are threads here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_workers.h"
#include "engine/workers/control_messages.h"
#include "tests/engine/pages/page_tier_fixture.h"
#include "tests/support/linked_workers.h"
#include "tests/support/wire_rings.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;
using testing::LinkedPair;

class WorkerTiersTest : public testing::PageTierFixture {
 protected:
  static constexpr int kRanks = 3;
  static constexpr int kTokens = 330;
  static constexpr int kPages = kTokens / kPage;
  static constexpr int32_t kKept = kPages * kPage;

  WorkerTiersTest() : model_(testing::SlowToCompute(folder_)) {
    EngineOptions plain = PageTierFixture::Options(model_, 1);
    plain.kv_disk.clear();
    plain_ = Make(plain);
    page_bytes_ = plain_->model().kv_bytes_per_token * kPage;
  }
  ~WorkerTiersTest() override {
    for (const auto& pair : pairs_) pair->Cut();
    for (std::thread& thread : threads_) thread.join();
  }

  // Memory for three texts, and so many pages in the host.
  EngineOptions Options(int host_pages = 12 * kPages) const {
    EngineOptions options = PageTierFixture::Options(model_, kRanks);
    options.kv_disk.clear();
    options.kv_memory_bytes = static_cast<size_t>(kRanks * (kPages + 4) * page_bytes_);
    options.kv_host_bytes = host_pages * (page_bytes_ + 8192);
    return options;
  }

  LinkedPair& AddWorker(const std::string& name, int ranks) {
    const auto pair = pairs_.emplace_back(std::make_shared<LinkedPair>("the pair of " + name));
    threads_.emplace_back([this, pair, name, ranks] {
      EngineOptions options = PageTierFixture::Options(model_, ranks);
      options.kv_disk.clear();
      const auto worker =
          CreateWorkerWith(Seams(), options, {.name = name, .build = "1"}, *backend_, registry_)
              .value();
      const auto link = LinkedPair::End(pair, 1);
      worker->Serve(*link).IgnoreError();
    });
    source_.Add(LinkedPair::End(pair, 0));
    return *pair;
  }

  std::unique_ptr<Engine> MakeWithWorkers(const EngineOptions& options, int local_ranks) {
    SeamedOptions seamed{options};
    seamed.seams = Seams();
    seamed.seams.workers = {.source = &source_,
                            .local_ranks = local_ranks,
                            .build = "1",
                            .silence = std::chrono::seconds(2),
                            .replacement_timeout = std::chrono::minutes(1)};
    return Make(seamed);
  }

  static EngineSeams Seams() {
    EngineSeams seams;
    seams.open_carrier = [] { return testing::OpenCarrier(testing::WireKind::kMemory); };
    return seams;
  }

  RequestSpec Text(int seed) const { return Spec(Prompt(kTokens, 300, seed)); }

  // What this engine answers is what one of one rank without tiers does.
  Answer AskAndCompare(Engine& engine, const RequestSpec& spec) {
    const Answer answer = Ask(engine, spec);
    EXPECT_EQ(answer, Ask(*plain_, spec));
    return answer;
  }
  // Asks about other texts, so that memory has nothing of those before.
  void FillMemory(Engine& engine) {
    for (int i = 0; i < 5; ++i) Ask(engine, Text(next_seed_++));
  }
  static bool AllWritten(const Engine& engine) { return WaitForWrites(engine, "host"); }

  const std::string model_;
  std::unique_ptr<Engine> plain_;
  int64_t page_bytes_ = 0;
  int next_seed_ = 1000;
  testing::AddedWorkers source_;
  std::vector<std::shared_ptr<LinkedPair>> pairs_;
  std::vector<std::thread> threads_;
};

class WorkerTiersBitsTest : public WorkerTiersTest, public ::testing::WithParamInterface<int> {};

// With so many ranks of three at the coordinator, and the others at two workers.
TEST_P(WorkerTiersBitsTest, WhatMemoryLosesComesBackBitByBit) {
  const int local = GetParam();
  AddWorker("one", kRanks - local - 1);
  AddWorker("two", 1);
  const auto engine = MakeWithWorkers(Options(), local);
  ASSERT_NE(engine, nullptr);
  const RequestSpec spec = Text(1);
  EXPECT_EQ(AskAndCompare(*engine, spec).usage.restored_tokens, 0);
  ASSERT_TRUE(WaitForPages(*engine, kPages, "host"));
  for (int turn = 1; turn <= 2; ++turn) {
    FillMemory(*engine);
    const Answer answer = AskAndCompare(*engine, spec);
    EXPECT_EQ(answer.usage.host_tokens, kKept);
    EXPECT_EQ(answer.usage.restored_tokens, kKept);
    EXPECT_EQ(answer.usage.cache_miss, std::nullopt);
    EXPECT_EQ(Metric(*engine, "kv_tier_checks_total", "host"), turn) << "a page was computed again";
  }
  EXPECT_EQ(Metric(*engine, "kv_tier_rejects_total", "host"), 0);
  EXPECT_EQ(Metric(*engine, "kv_tier_mismatches_total", "host"), 0);
  EXPECT_EQ(engine->Load().tiers.at(0).kind, TierKind::kHost);
  EXPECT_EQ(engine->Load().memory.kv_host > 0, local > 0) << "of this process";
}

INSTANTIATE_TEST_SUITE_P(Local, WorkerTiersBitsTest, ::testing::Values(0, 1),
                         [](const auto& info) { return absl::StrCat(info.param); });

// Pages of one rank; the tiers of the others stay.
TEST_F(WorkerTiersTest, WhatALostWorkerHadIsForgottenAndSavedAnew) {
  AddWorker("one", 1);
  LinkedPair& lost = AddWorker("two", 1);
  const auto engine = MakeWithWorkers(Options(), 1);
  ASSERT_NE(engine, nullptr);
  const RequestSpec spec = Text(1);
  AskAndCompare(*engine, spec);
  ASSERT_TRUE(WaitForPages(*engine, kPages, "host"));
  FillMemory(*engine);
  ASSERT_TRUE(AllWritten(*engine));
  const double pages = Metric(*engine, "kv_tier_pages", "host");
  AddWorker("three", 1);
  lost.Cut();
  EXPECT_TRUE(
      testing::Eventually([&] { return Metric(*engine, "kv_tier_pages", "host") < pages; }));
  const Answer again = AskAndCompare(*engine, spec);
  EXPECT_LT(again.usage.host_tokens, kKept / 2) << "the beginning that others have";
  ASSERT_TRUE(AllWritten(*engine));
  FillMemory(*engine);
  EXPECT_EQ(AskAndCompare(*engine, spec).usage.host_tokens, kKept);
  EXPECT_EQ(Metric(*engine, "kv_tier_up", "host"), 1);
  EXPECT_EQ(Metric(*engine, "kv_tier_rejects_total", "host"), 0);
}

// While it reads pages for a request.
TEST_F(WorkerTiersTest, ARestoreOutlivesTheLossOfAWorkerBitByBit) {
  AddWorker("one", 1);
  LinkedPair& lost = AddWorker("two", 1);
  const auto engine = MakeWithWorkers(Options(), 1);
  ASSERT_NE(engine, nullptr);
  const RequestSpec spec = Text(1);
  AskAndCompare(*engine, spec);
  ASSERT_TRUE(WaitForPages(*engine, kPages, "host"));
  FillMemory(*engine);
  ASSERT_TRUE(AllWritten(*engine));
  AddWorker("three", 1);
  const auto cut = std::make_shared<std::atomic<bool>>(false);
  lost.ToWorker([cut, &lost](std::string& bytes) {
    const wire::ToWorker message = DecodeToWorker(bytes).value();
    if (!message.has_copy() || message.copy().kind() != wire::CopyPage::KIND_LOAD) return true;
    *cut = true;
    lost.Cut();
    return false;
  });
  AskAndCompare(*engine, spec);
  EXPECT_TRUE(*cut);
  EXPECT_TRUE(testing::Eventually([&] {
    const RingLoad ring = engine->Load().ring;
    return ring.epoch > 1 && !ring.workers.at(0).lost && !ring.workers.at(1).lost;
  }));
  EXPECT_EQ(Metric(*engine, "kv_tier_up", "host"), 1);
  AskAndCompare(*engine, spec);
}

// The slot that the coordinator names holds another page than it asks for.
TEST_F(WorkerTiersTest, WhatASlotHasNotGotIsComputed) {
  LinkedPair& one = AddWorker("one", 2);
  const auto engine = MakeWithWorkers(Options(), 1);
  ASSERT_NE(engine, nullptr);
  const RequestSpec spec = Text(1);
  AskAndCompare(*engine, spec);
  ASSERT_TRUE(WaitForPages(*engine, kPages, "host"));
  FillMemory(*engine);
  ASSERT_TRUE(AllWritten(*engine));
  const auto changed = std::make_shared<std::atomic<int>>(0);
  one.ToWorker([changed](std::string& bytes) {
    wire::ToWorker message = DecodeToWorker(bytes).value();
    if (!message.has_copy() || message.copy().kind() != wire::CopyPage::KIND_LOAD) return true;
    if ((*changed)++ == 0) (*message.mutable_copy()->mutable_chain())[5] ^= 1;
    bytes = Encode(message);
    return true;
  });
  const Answer answer = AskAndCompare(*engine, spec);
  EXPECT_GT(*changed, 1);
  EXPECT_LT(answer.usage.host_tokens, kKept);
  ASSERT_TRUE(answer.usage.cache_miss.has_value());
  EXPECT_EQ(answer.usage.cache_miss->reason, CacheMiss::Reason::kDiskRefused);
  EXPECT_EQ(Metric(*engine, "kv_tier_rejects_total", "host"), 1);
  EXPECT_FALSE(engine->Load().ring.workers.at(0).lost);
}

// A peer's word is input, on both sides.
TEST_F(WorkerTiersTest, WhoeverSaysWhatItMayNotIsLost) {
  struct Fault {
    const char* name;
    std::function<void(wire::PageCopied&)> worker;
    std::function<void(wire::CopyPage&)> coordinator;
  };
  const std::vector<Fault> faults = {
      {"an unknown ticket", [](auto& copied) { copied.set_ticket(1 << 30); }, nullptr},
      {"OK as a failure", [](auto& copied) { copied.mutable_status(); }, nullptr},
      {"a slot that there is not", nullptr, [](auto& copy) { copy.set_slot(1 << 30); }},
      {"a page that there is not", nullptr, [](auto& copy) { copy.set_page(-1); }},
      {"another's rank", nullptr, [](auto& copy) { copy.set_rank(0); }},
      {"a short chain", nullptr, [](auto& copy) { copy.set_chain("x"); }},
      {"no kind", nullptr, [](auto& copy) { copy.clear_kind(); }},
  };
  LinkedPair* pair = &AddWorker("first", 2);
  const auto engine = MakeWithWorkers(Options(), 1);
  ASSERT_NE(engine, nullptr);
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.name);
    const uint64_t epoch = engine->Load().ring.epoch;
    const auto done = std::make_shared<std::atomic<bool>>(false);
    if (fault.worker != nullptr) {
      pair->FromWorker([done, fault](std::string& bytes) {
        wire::FromWorker message = DecodeFromWorker(bytes).value();
        if (!message.has_copied() || done->exchange(true)) return true;
        fault.worker(*message.mutable_copied());
        bytes = Encode(message);
        return true;
      });
    } else {
      pair->ToWorker([done, fault](std::string& bytes) {
        wire::ToWorker message = DecodeToWorker(bytes).value();
        if (!message.has_copy() || done->exchange(true)) return true;
        fault.coordinator(*message.mutable_copy());
        bytes = Encode(message);
        return true;
      });
    }
    LinkedPair* const next = &AddWorker(absl::StrCat("after ", fault.name), 2);
    const RequestSpec spec = Text(next_seed_++);
    AskAndCompare(*engine, spec);
    EXPECT_TRUE(testing::Eventually([&] { return engine->Load().ring.epoch > epoch; }));
    EXPECT_TRUE(*done);
    EXPECT_TRUE(testing::Eventually([&] { return !engine->Load().ring.workers.at(0).lost; }));
    pair->FromWorker(nullptr);
    pair->ToWorker(nullptr);
    pair = next;
  }
  EXPECT_EQ(Metric(*engine, "kv_tier_up", "host"), 1);
}

// Nobody waits for copies that a worker owes, here for 20 minutes (exchange_timeout), once the
// engine ends.
TEST_F(WorkerTiersTest, AnEngineEndsWhileAWorkerOwesACopy) {
  LinkedPair& one = AddWorker("one", 2);
  auto engine = MakeWithWorkers(Options(), 1);
  ASSERT_NE(engine, nullptr);
  const auto asked = std::make_shared<std::atomic<bool>>(false);
  one.ToWorker([asked](std::string& bytes) {
    if (!DecodeToWorker(bytes).value().has_copy()) return true;
    *asked = true;
    return false;
  });
  AskAndCompare(*engine, Text(1));
  ASSERT_TRUE(testing::Eventually([&] { return asked->load(); }));
  const auto begun = std::chrono::steady_clock::now();
  engine.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::minutes(1));
}

// A text on one rank comes back to that rank, wherever others would go.
TEST_F(WorkerTiersTest, ShortTextsComeBackToTheRankThatHadThem) {
  AddWorker("one", 2);
  const auto engine = MakeWithWorkers(Options(), 1);
  ASSERT_NE(engine, nullptr);
  constexpr int kShort = 80;
  constexpr int32_t kShortKept = (kShort - 1) / kPage * kPage;
  std::vector<RequestSpec> specs;
  for (int seed = 1; seed <= 6; ++seed) specs.push_back(Spec(Prompt(kShort, 300, seed)));
  for (const RequestSpec& spec : specs) AskAndCompare(*engine, spec);
  ASSERT_TRUE(AllWritten(*engine));
  FillMemory(*engine);
  for (const RequestSpec& spec : specs) {
    EXPECT_EQ(AskAndCompare(*engine, spec).usage.host_tokens, kShortKept);
  }
}

TEST_F(WorkerTiersTest, TooLittleForAPageOfEachRankIsRefused) {
  EngineOptions options = Options();
  options.kv_host_bytes = 4 * (page_bytes_ + 8192);
  options.ranks = 16;
  SeamedOptions seamed{options};
  EngineSeams seams = Seams();
  seams.workers = {
      .source = &source_, .local_ranks = 1, .build = "1", .silence = std::chrono::seconds(2)};
  const absl::Status refused = CreateEngineWith(seams, options, *backend_, registry_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("raise kv-host"));
}

}  // namespace
}  // namespace annulus
