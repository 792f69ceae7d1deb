// Where the memory of the engine goes: keys and values over the ranks, windows, caches, and what
// admission foresees.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/demo/document.h"
#include "engine/engine_seams.h"
#include "engine/model/made/recall_model.h"
#include "engine/scheduler/placement.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/eventually.h"
#include "tests/support/machine_files.h"
#include "tests/support/plain_options.h"

namespace annulus {
namespace {

using testing::CollectingSink;

constexpr int kPageTokens = 64;
constexpr int kChunkTokens = 512;

// Keeps the engine's load as it stands while each chunk of the prompt is computed.
class WatchingSink : public CollectingSink {
 public:
  explicit WatchingSink(const Engine& engine) : engine_(engine) {}

  void OnProgress(const PromptProgress& progress) override {
    {
      std::lock_guard lock(mutex_);
      seen_.emplace_back(progress.processed, engine_.Load());
    }
    CollectingSink::OnProgress(progress);
  }

  std::vector<std::pair<int64_t, EngineLoad>> seen() const {
    std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  const Engine& engine_;
  mutable std::mutex mutex_;
  std::vector<std::pair<int64_t, EngineLoad>> seen_;
};

class MemoryTest : public ::testing::Test {
 protected:
  MemoryTest() : backend_(CreateCpuBackend().value()) { RegisterCpuKernels(registry_); }

  std::unique_ptr<Engine> Make(int ranks, size_t kv_memory_bytes) {
    EngineOptions options = testing::PlainOptions();
    options.ranks = ranks;
    options.threads = ranks;
    options.kv_memory_bytes = kv_memory_bytes;
    options.page_tokens = kPageTokens;
    options.chunk_tokens = kChunkTokens;
    options.tokens_per_rank = 256;
    auto engine = CreateEngineWith({.through_bytes = true}, options, *backend_, registry_);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  static RequestSpec Spec(std::vector<int32_t> prompt, int max_tokens) {
    RequestSpec spec;
    spec.prompt = std::move(prompt);
    spec.sampling.temperature = 0;
    spec.sampling.max_tokens = max_tokens;
    return spec;
  }

  static std::vector<int32_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

  // The load once the last request's pages are free again.
  static EngineLoad IdleLoad(const Engine& engine) {
    EXPECT_TRUE(testing::Eventually([&] { return engine.Load().running == 0; }));
    return engine.Load();
  }

  static int64_t Pages(const RankLoad& rank, const std::string& kind) {
    // One page holds one layer: the model has one full and one window layer.
    const int64_t page_bytes = rank.kv_bytes_total / rank_pages_;
    return rank.memory_bytes.at(kind) / page_bytes;
  }

  // Reads how many pages a rank has from how much one page takes.
  static void Measure(const Engine& engine) {
    const int64_t page_bytes = engine.model().kv_bytes_per_token * kPageTokens;
    rank_pages_ = engine.Load().ranks[0].kv_bytes_total / page_bytes;
    ASSERT_EQ(engine.Load().ranks[0].kv_bytes_total, rank_pages_ * page_bytes);
  }

  static double Metric(const Engine& engine, const std::string& name, const std::string& label) {
    for (const MetricFamily& family : engine.Metrics()) {
      if (family.name != name) continue;
      for (const MetricSample& sample : family.samples) {
        if (sample.labels.empty() || sample.labels[0].second == label) return sample.value;
      }
    }
    ADD_FAILURE() << "no metric " << name << " of " << label;
    return -1;
  }

  // Of a sequence's first `pages` pages over all ranks, those on `rank`.
  static int64_t PagesOn(int rank, int64_t pages, int ranks) {
    int64_t count = 0;
    for (int64_t page = 0; page < pages; ++page) {
      const auto index = PlaceOnRing(static_cast<int32_t>(page), 1, ranks, ShardsFor(ranks));
      count += index == rank ? 1 : 0;
    }
    return count;
  }

  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
  static inline int64_t rank_pages_ = 1;
};

// Full groups: each rank holds its share of the pages to within one stripe, at every moment.
// Window groups: the window and the chunk being computed, wherever in the prompt.
TEST_F(MemoryTest, EachRankHoldsItsShareAndWindowsStaySmall) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const int64_t window = RecallConfig(2).layers[0].window;
  ASSERT_GT(window, 0);
  for (const int ranks : {1, 2, 3, 4, 8}) {
    auto engine = Make(ranks, size_t{64} << 20);
    Measure(*engine);
    const int64_t chunk = std::max(kPageTokens, kChunkTokens / ranks / kPageTokens * kPageTokens) *
                          static_cast<int64_t>(ranks);
    const int tokens =
        std::uniform_int_distribution<int>(6000, 9000)(random) / (kSanitized ? 3 : 1);
    auto sink = std::make_shared<WatchingSink>(*engine);
    ASSERT_TRUE(engine->Submit(Spec(std::vector<int32_t>(tokens, 'x'), 1), sink).ok());
    ASSERT_TRUE(sink->Wait()->status.ok());
    int64_t moments = 0;
    for (const auto& [processed, load] : sink->seen()) {
      // Once the prompt's whole pages are known to the cache they count there.
      if (load.ranks[0].memory_bytes.at("kv_cached") > 0) break;
      ++moments;
      SCOPED_TRACE(::testing::Message() << processed << " tokens over " << ranks << " ranks");
      const int64_t pages = (processed + kPageTokens - 1) / kPageTokens;
      int64_t window_pages = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(Pages(load.ranks[rank], "kv_full"), PagesOn(rank, pages, ranks))
            << "rank " << rank;
        const int64_t most = MostLeaves(ranks, ShardsFor(ranks));
        EXPECT_LE(Pages(load.ranks[rank], "kv_window"),
                  (window + chunk) / kPageTokens * most / ShardsFor(ranks) + 2);
        window_pages += Pages(load.ranks[rank], "kv_window");
      }
      // At each end a page may be touched in part.
      EXPECT_LE(window_pages, (window + chunk) / kPageTokens + 2);
      EXPECT_GE(window_pages, 1);
    }
    EXPECT_GE(moments, tokens / chunk);
    // Afterwards all of it is kept for reuse, and windows keep what the next row would see.
    const EngineLoad after = IdleLoad(*engine);
    for (const RankLoad& rank : after.ranks) {
      EXPECT_EQ(rank.kv_bytes_used + rank.memory_bytes.at("kv_reserved"), 0);
      EXPECT_NEAR(Pages(rank, "kv_cached"), PagesOn(rank.rank, tokens / kPageTokens, ranks),
                  window / kPageTokens + 2);
    }
  }
}

TEST_F(MemoryTest, KindsAddUpWhileRequestsRun) {
  auto engine = Make(3, size_t{48} << 20);
  Measure(*engine);
  std::vector<std::shared_ptr<WatchingSink>> sinks;
  for (int i = 0; i < 6; ++i) {
    // Few letters, so that some begin alike and share pages.
    RequestSpec spec = Spec(std::vector<int32_t>(3000 + 700 * i, 'a' + i % 2), 5);
    spec.shared_prefixes = {1000, 2500};
    sinks.push_back(std::make_shared<WatchingSink>(*engine));
    ASSERT_TRUE(engine->Submit(std::move(spec), sinks.back()).ok());
  }
  int64_t most = 0;
  int64_t reserved = 0;
  for (const auto& sink : sinks) {
    ASSERT_TRUE(sink->Wait()->status.ok());
    for (const auto& [processed, load] : sink->seen()) {
      for (const RankLoad& rank : load.ranks) {
        int64_t sum = 0;
        for (const char* kind : {"kv_full", "kv_window", "kv_summaries"}) {
          EXPECT_GE(rank.memory_bytes.at(kind), 0) << kind;
          sum += rank.memory_bytes.at(kind);
        }
        // What is reserved has nothing in it yet, and is not in use.
        EXPECT_EQ(sum, rank.kv_bytes_used);
        for (const char* kind : {"kv_reserved", "kv_cached", "kv_free"}) {
          EXPECT_GE(rank.memory_bytes.at(kind), 0) << kind;
          sum += rank.memory_bytes.at(kind);
        }
        EXPECT_EQ(sum, rank.kv_bytes_total);
        reserved = std::max(reserved, rank.memory_bytes.at("kv_reserved"));
      }
      const RankLoad& one = load.ranks[1];
      most = std::max(most, one.kv_bytes_total - one.memory_bytes.at("kv_free"));
    }
  }
  EXPECT_GT(reserved, 0);
  // There may have been more between two of these moments.
  const double high = Metric(*engine, "annulus_pool_high_water_bytes", "rank1-pages");
  EXPECT_GE(high, static_cast<double>(most));
  EXPECT_LT(high, static_cast<double>(sinks[0]->seen().back().second.ranks[1].kv_bytes_total));
}

// What is foreseen grows with the prompt by its pages and ids, and by nothing of its square.
TEST_F(MemoryTest, TheForecastIsLinearInThePrompt) {
  auto engine = Make(2, size_t{64} << 20);
  Measure(*engine);
  const MemoryForecast idle = engine->Load().memory;
  EXPECT_EQ(idle.kv, 0);
  EXPECT_GT(idle.weights, 0);
  EXPECT_GT(idle.step, 0);
  const double held = Metric(*engine, "annulus_pool_high_water_bytes", "rank0");
  for (const int tokens : {4000, 8000, 16'000}) {
    // Another letter each: nothing is shared.
    auto sink = std::make_shared<CollectingSink>();
    const int letter = 'a' + tokens / 4000;
    ASSERT_TRUE(engine->Submit(Spec(std::vector<int32_t>(tokens, letter), 1), sink).ok());
    ASSERT_TRUE(sink->Wait()->status.ok());
  }
  const MemoryForecast busy = engine->Load().memory;
  EXPECT_EQ(busy.weights, idle.weights);
  EXPECT_EQ(busy.step, idle.step);
  EXPECT_EQ(busy.ring, 0) << "ranks of one process hand over addresses";
  const int64_t all = 4000 + 8000 + 16'000;
  const int64_t windows = 3 * (kChunkTokens + 512) * engine->model().kv_bytes_per_token;
  EXPECT_GE(busy.kv, all * engine->model().kv_bytes_per_token);
  EXPECT_LE(busy.kv, all * engine->model().kv_bytes_per_token + windows);
  // Ids twice, and the index of prefixes.
  EXPECT_GE(busy.requests - idle.requests, all * 4 + 16'000 * 8);
  EXPECT_LE(busy.requests - idle.requests, all * 32);
  EXPECT_EQ(Metric(*engine, "annulus_pool_high_water_bytes", "rank0"), held)
      << "a step took memory that was not planned";
}

// Neighbours in the ring share a memory node; with fewer ranks than nodes a rank is left alone. The
// nodes are imagined: both have the processors of this process.
TEST_F(MemoryTest, RanksAreSharedOutOverMemoryNodes) {
  const testing::MachineFiles machine;
  machine.Write("sys/devices/system/node/online", "0-1\n");
  for (const char* node : {"node0", "node1"}) {
    machine.Write(absl::StrCat("sys/devices/system/node/", node, "/cpulist"), "0-4095\n");
  }
  backend_ = CreateCpuBackend({.root = machine.root()}).value();
  ASSERT_EQ(backend_->capabilities().nodes, 2);
  for (const auto& [ranks, nodes] : std::vector<std::pair<int, std::vector<int>>>{
           {1, {-1}}, {2, {0, 1}}, {3, {0, 0, 1}}, {4, {0, 0, 1, 1}}}) {
    auto engine = Make(ranks, size_t{4} << 20);
    std::vector<int> placed;
    for (const RankLoad& rank : engine->Load().ranks) placed.push_back(rank.node);
    EXPECT_EQ(placed, nodes);
    auto sink = std::make_shared<CollectingSink>();
    ASSERT_TRUE(engine->Submit(Spec(std::vector<int32_t>(700, 'x'), 3), sink).ok());
    EXPECT_TRUE(sink->Wait()->status.ok());
  }
}

// The smallest memory that can hold a request's pages: nothing else is taken from it.
TEST_F(MemoryTest, AFewPagesAreEnoughForAShortRequest) {
  for (const int ranks : {1, 3}) {
    SCOPED_TRACE(::testing::Message() << ranks << " ranks");
    // One layer of 64 tokens in float32 is a page. The prompt and answer need two of the full
    // group and, of the window group, those of one window and one chunk: two as well.
    const size_t page = 1024 * kPageTokens;
    auto engine = Make(ranks, 4 * page * ranks);
    EXPECT_EQ(engine->Load().ranks[0].kv_bytes_total, static_cast<int64_t>(4 * page));
    auto sink = std::make_shared<CollectingSink>();
    ASSERT_TRUE(engine->Submit(Spec(std::vector<int32_t>(100, 'x'), 5), sink).ok());
    ASSERT_TRUE(sink->Wait()->status.ok());
  }
}

// Of 64 tokens in float32 a page of one layer is 64 KiB, and the bounds of its keys are a
// sixteenth of that. They are planned with the pages, to the byte: what admission says that a
// request needs is what it takes, all of it at once, and what it gives back.
TEST_F(MemoryTest, SummariesArePlannedWithThePages) {
  constexpr int64_t kSummarised = 16;
  const auto ask = [](int tokens, const char* policy) {
    RequestSpec spec = Spec(std::vector<int32_t>(tokens, 'x'), 5);
    spec.attention = ParsePolicy(policy).value();
    return spec;
  };
  for (const int ranks : {1, 3}) {
    SCOPED_TRACE(::testing::Message() << ranks << " ranks");
    const int tokens = 64 * (ranks == 1 ? 37 : 100);
    auto small = Make(ranks, ranks * size_t{4} * 1024 * kPageTokens);
    const int64_t page = small->Load().ranks[0].kv_bytes_total / 4;
    // What a refusal says that the request needs.
    const auto needed = [&](const char* policy) {
      const absl::Status status =
          small->Submit(ask(tokens, policy), std::make_shared<CollectingSink>()).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
      const std::string message(status.message());
      const size_t at = message.find(" need ");
      EXPECT_NE(at, std::string::npos) << message;
      return std::stoll(message.substr(at + 6));
    };
    const int64_t dense = needed("dense");
    int64_t summaries = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t complete = (tokens + 5) / kPageTokens;
      const int64_t own = PagesOn(rank, complete, ranks);
      summaries += (own + kSummarised - 1) / kSummarised;
    }
    EXPECT_EQ(needed("top_pages"), dense + summaries * page);
    EXPECT_EQ(needed("adaptive"), dense);

    auto engine = Make(ranks, size_t{64} << 20);
    auto sink = std::make_shared<WatchingSink>(*engine);
    ASSERT_TRUE(engine->Submit(ask(tokens, "top_pages"), sink).ok());
    ASSERT_TRUE(sink->Wait()->status.ok());
    ASSERT_FALSE(sink->seen().empty());
    for (const auto& [processed, load] : sink->seen()) {
      int64_t held = 0;
      for (const RankLoad& rank : load.ranks) held += rank.memory_bytes.at("kv_summaries");
      EXPECT_EQ(held, summaries * page);
    }
    for (const RankLoad& rank : IdleLoad(*engine).ranks) {
      EXPECT_EQ(rank.memory_bytes.at("kv_reserved"), 0);
      EXPECT_EQ(rank.kv_bytes_used, 0);
    }
  }
}

// The memory that a request with summaries needs is enough for it, and a page less is not; again
// when its prompt's pages are cached, whose summaries it makes anew.
TEST_F(MemoryTest, NoByteMoreThanPlannedIsTakenForSummaries) {
  const int tokens = 64 * 37 + 5;
  const size_t page = 1024 * kPageTokens;
  // A full layer's pages with their summaries, and a window's: see PagesNeeded.
  PlanLimits limits;
  limits.prefill_rows_per_rank = kChunkTokens;
  limits.sampled_rows_per_rank = 64;
  limits.group_windows = {0, RecallConfig(2).layers[0].window};
  PageDemand demand{tokens + 5, 0, 1, 16};
  const auto pages = static_cast<size_t>(AllPagesNeeded(demand, limits));
  const auto submit = [&](Engine& engine, std::shared_ptr<CollectingSink> sink) {
    RequestSpec spec = Spec(std::vector<int32_t>(tokens, 'x'), 5);
    spec.attention = ParsePolicy("top_pages:pages=3").value();
    return engine.Submit(std::move(spec), std::move(sink));
  };
  auto tight = Make(1, (pages - 1) * page);
  EXPECT_EQ(submit(*tight, std::make_shared<CollectingSink>()).status().code(),
            absl::StatusCode::kOutOfRange);
  auto engine = Make(1, pages * page);
  std::vector<std::vector<int32_t>> answers;
  for (int turn = 0; turn < 2; ++turn) {
    auto sink = std::make_shared<CollectingSink>();
    ASSERT_TRUE(submit(*engine, sink).ok());
    ASSERT_TRUE(sink->Wait()->status.ok()) << sink->Wait()->status;
    EXPECT_EQ(sink->Wait()->usage.cached_tokens, turn == 0 ? 0 : tokens / 64 * 64);
    answers.push_back(sink->ids());
  }
  EXPECT_EQ(answers[0], answers[1]);
}

// Two documents fit; a third takes the pages of the one that was not asked for longest.
TEST_F(MemoryTest, PressureDropsTheLeastRecentlyUsedPrefix) {
  auto engine = Make(2, size_t{16} << 20);
  const int64_t room = engine->Load().ranks[0].kv_bytes_total * 2;
  const int64_t tokens = room / engine->model().kv_bytes_per_token * 2 / 5;
  std::vector<bench::DemoDocument> documents;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    bench::DemoOptions options;
    options.bytes = tokens;
    options.seed = seed;
    documents.push_back(bench::MakeDemoDocument(options).value());
  }
  const auto ask = [&](const bench::DemoDocument& document) {
    RequestSpec spec = Spec(Bytes(document.text + document.facts[1].cue), 64);
    spec.shared_prefixes = {static_cast<int32_t>(tokens)};
    spec.sampling.stop = {"\n"};
    auto sink = std::make_shared<CollectingSink>();
    EXPECT_TRUE(engine->Submit(std::move(spec), sink).ok());
    const std::optional<Completion> done = sink->Wait();
    EXPECT_TRUE(done.has_value() && done->status.ok());
    EXPECT_EQ(sink->text(), document.facts[1].answer);
    return done.has_value() ? done->usage.cached_tokens : -1;
  };
  const int64_t whole = tokens / kPageTokens * kPageTokens;
  EXPECT_EQ(ask(documents[0]), 0);
  EXPECT_EQ(ask(documents[1]), 0);
  EXPECT_GE(ask(documents[0]), whole);  // now the second is the oldest
  EXPECT_EQ(ask(documents[2]), 0);
  EXPECT_GE(ask(documents[0]), whole) << "the prefix used last was dropped";
  EXPECT_LT(ask(documents[1]), whole) << "it should have made room";
  EXPECT_EQ(Metric(*engine, "annulus_admission_rejections_total", "memory"), 0);
}

}  // namespace
}  // namespace annulus
