// Tables of a million tokens without their bytes: what a step of 24 layers costs the host beside
// what the kernels do. A program of its own, as it counts what the heap gives out.

#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/ring/in_process_channel.h"
#include "engine/ring/ring_attention.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/shards.h"
#include "tests/support/counting_heap.h"

namespace annulus {
namespace {

using testing::HeapAllocations;

constexpr int kPageTokens = 64;
constexpr int kShards = 16;
constexpr int kLayers = 24;
constexpr int kHeads = 14;
constexpr int kDim = 64;
constexpr size_t kLayerBytes = 32768;
constexpr int64_t kColumns = int64_t{kHeads} * kDim;

// A kernel that only looks at where it would read: the sum of all addresses, and that of the views
// alone.
thread_local uint64_t addresses = 0;
thread_local uint64_t views = 0;

absl::Status Look(Stream&, const AttentionParams& params) {
  for (const AttentionItem& item : params.items) {
    for (const KvPageView& page : item.pages) {
      addresses += reinterpret_cast<uintptr_t>(page.data) + item.page_offset +
                   static_cast<uint64_t>(page.first_position) * 7;
      views += reinterpret_cast<uintptr_t>(page.data);
    }
  }
  return absl::OkStatus();
}

OpTable Ops() {
  OpTable ops;
  ops.attention = &Look;
  ops.kv_append = [](Stream&, const KvAppendParams&) { return absl::OkStatus(); };
  ops.merge_state = [](Stream&, const MergeStateParams&) { return absl::OkStatus(); };
  return ops;
}

// One rank's part of a step that decodes a row behind `tokens`, its pages spread over the ring.
class DecodingRank {
 public:
  DecodingRank(InProcessRing& ring, Backend& backend, int rank, int32_t tokens, RingMode mode)
      : rank_(rank), stream_(backend.CreateStream(1).value()), ops_(Ops()) {
    config_.shape = {kPageTokens, 2, kDim, kDim, DType::kBF16};
    config_.layer_page_bytes = kLayerBytes;
    config_.heads = kHeads;
    config_.shards = kShards;
    config_.heartbeat = &heartbeat_;
    attention_ =
        std::make_unique<RingAttention>(ring.channel(rank), backend, ops_, *stream_, config_);
    const int ranks = ring.channel(rank).size();
    for (int32_t first = 0; first < tokens; first += kPageTokens) {
      const int leaf = LeafOfPage(first / kPageTokens, kShards);
      table_.push_back({leaf * ranks / kShards, first / kPageTokens, first});
    }
    RingItem item;
    for (int32_t r = 0; r < ranks; ++r) item.ring.push_back(r);
    item.index = rank;
    item.mode = mode;
    item.sampled = true;
    item.begin = tokens - 1;
    item.end = tokens;
    item.positions.resize(static_cast<size_t>(ranks));
    item.positions[0] = {tokens - 1};
    item.sampled_anchor = table_.back().rank;
    items_.push_back(std::move(item));
    memory_.resize(64 * kColumns);
  }

  // What a step lays out before its layers.
  void Begin() {
    RingItem& item = items_.front();
    shards_.clear();
    shards_.push_back(BuildItemShards(item, table_, 0, kPageTokens, kShards));
    RingAttention::Note(shards_, items_);
    states_ = RingAttention::Reserve(items_);
  }
  void LayOut(RingPlan& plan) { attention_->LayOut(Layer(0), plan); }

  void Run(int layer, RingPlan& plan) {
    const absl::Status status = attention_->Run(Layer(layer), plan);
    ASSERT_TRUE(status.ok()) << status;
  }
  void RunAlone(int layer) {
    const absl::Status status = attention_->Run(Layer(layer));
    ASSERT_TRUE(status.ok()) << status;
  }

 private:
  RingLayer Layer(int index) {
    RingLayer layer;
    layer.tag = static_cast<uint64_t>(index + 1) << 16;
    layer.items = items_;
    layer.shards = shards_;
    const int64_t own = items_.front().own_rows();
    layer.query = {memory_.data(), own, kColumns, kColumns};
    layer.key = layer.value = {memory_.data(), own, 2 * kDim, 2 * kDim};
    // No page is read: the addresses are numbers.
    layer.page_data = [this](int32_t page) {
      return reinterpret_cast<std::byte*>((uintptr_t{static_cast<uintptr_t>(rank_) + 1} << 44) +
                                          static_cast<uintptr_t>(page) * kLayers * kLayerBytes);
    };
    layer.page_offset = static_cast<size_t>(index) * kLayerBytes;
    float* const state = memory_.data() + kColumns;
    layer.state = {state, state, own, kHeads, kDim};
    layer.served = {state, state, states_.served, kHeads, kDim};
    layer.kept = {state, state, states_.kept, kHeads, kDim};
    return layer;
  }

  const int rank_;
  const std::unique_ptr<Stream> stream_;
  const OpTable ops_;
  Heartbeat heartbeat_;
  RingAttentionConfig config_;
  std::unique_ptr<RingAttention> attention_;
  std::vector<PageEntry> table_;
  std::vector<RingItem> items_;
  std::vector<ItemShards> shards_;
  StateRows states_;
  std::vector<float> memory_;  // of queries and states, which nobody reads
};

double Milliseconds(SteadyTime start) {
  return SecondsBetween(start, std::chrono::steady_clock::now()) * 1e3;
}

TEST(RingPlanTest, LayersOfAMillionTokensTakeNothingFromTheHeap) {
  const auto backend = CreateCpuBackend().value();
  InProcessRing ring(*backend, 1);
  DecodingRank rank(ring, *backend, 0, 1'000'000, RingMode::kPassQ);
  rank.Begin();
  addresses = 0;
  SteadyTime start = std::chrono::steady_clock::now();
  for (int layer = 0; layer < kLayers; ++layer) rank.RunAlone(layer);
  RecordProperty("each_layer_by_itself_microseconds", static_cast<int>(Milliseconds(start) * 1e3));
  const uint64_t expected = addresses;
  addresses = 0;
  start = std::chrono::steady_clock::now();
  RingPlan plan;
  rank.LayOut(plan);
  const int64_t before = HeapAllocations();
  for (int layer = 0; layer < kLayers; ++layer) rank.Run(layer, plan);
  const int64_t taken = HeapAllocations() - before;
  RecordProperty("laid_out_once_microseconds", static_cast<int>(Milliseconds(start) * 1e3));
  EXPECT_EQ(taken, 0);
  EXPECT_EQ(addresses, expected);
}

// The messages of several ranks refer to lists that the first layer has laid out.
class RingPlanOfRanksTest : public ::testing::TestWithParam<RingMode> {};

TEST_P(RingPlanOfRanksTest, LayersAfterTheFirstTakeNothingFromTheHeap) {
  constexpr int kRanks = 4;
  const auto backend = CreateCpuBackend().value();
  InProcessRing ring(*backend, kRanks);
  std::vector<std::unique_ptr<DecodingRank>> ranks;
  std::vector<RingPlan> plans(kRanks);
  for (int r = 0; r < kRanks; ++r) {
    ranks.push_back(std::make_unique<DecodingRank>(ring, *backend, r, 1'000'000, GetParam()));
    ranks[r]->Begin();
    ranks[r]->LayOut(plans[r]);
  }
  int64_t taken = 0;  // by all ranks
  // No rank is a layer ahead: mail that waits for a slow rank would take memory.
  std::barrier<> together(kRanks);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      ranks[r]->Run(0, plans[r]);
      together.arrive_and_wait();
      if (r == 0) taken = -HeapAllocations();
      for (int layer = 1; layer < kLayers; ++layer) {
        together.arrive_and_wait();
        ranks[r]->Run(layer, plans[r]);
      }
      together.arrive_and_wait();
      if (r == 0) taken += HeapAllocations();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, RingPlanOfRanksTest,
                         ::testing::Values(RingMode::kPassQ, RingMode::kPassKv));

// What a kernel derives from the views of one layer serves all only if theirs are the same.
TEST(RingPlanTest, PagesOfPeersKeepTheirViewsFromLayerToLayer) {
  constexpr int kRanks = 4;
  const auto backend = CreateCpuBackend().value();
  InProcessRing ring(*backend, kRanks);
  std::vector<std::unique_ptr<DecodingRank>> ranks;
  for (int r = 0; r < kRanks; ++r) {
    ranks.push_back(std::make_unique<DecodingRank>(ring, *backend, r, 4096, RingMode::kPassKv));
    ranks[r]->Begin();
  }
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      RingPlan plan;
      uint64_t of_first_layer = 0;
      uint64_t previous = 0;
      for (int layer = 0; layer < kLayers; ++layer) {
        addresses = views = 0;
        ranks[r]->Run(layer, plan);
        if (layer == 0) of_first_layer = views;
        EXPECT_EQ(views, of_first_layer) << "rank " << r << ", layer " << layer;
        if (r == 0) {  // it has the row
          EXPECT_GT(addresses, previous) << "layer " << layer;
        }
        previous = addresses;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A plan that is cleared follows the lists that have changed since.
TEST(RingPlanTest, AClearedPlanIsLaidOutAnew) {
  const auto backend = CreateCpuBackend().value();
  InProcessRing ring(*backend, 1);
  DecodingRank whole(ring, *backend, 0, 4096, RingMode::kPassQ);
  DecodingRank half(ring, *backend, 0, 2048, RingMode::kPassQ);
  whole.Begin();
  half.Begin();
  RingPlan plan;
  addresses = 0;
  whole.Run(0, plan);
  const uint64_t of_whole = addresses;
  plan.Clear();
  EXPECT_FALSE(plan.laid_out());
  addresses = 0;
  half.Run(1, plan);
  EXPECT_TRUE(plan.laid_out());
  const uint64_t of_half = addresses;
  addresses = 0;
  half.RunAlone(1);
  EXPECT_EQ(addresses, of_half);
  EXPECT_NE(of_half, of_whole);
}

}  // namespace
}  // namespace annulus
