// Attention of the layers of a step: planned and uploaded once, as long as only addresses differ.
#include "kernels/cuda/kept_attention.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/tuning/workspace_plan.h"
#include "tests/kernels/cpu/attention_fixture.h"
#include "tests/support/cuda/emulated_device.h"

namespace annulus::cuda {
namespace {

using testing::AttentionResult;
using testing::PagedSequence;
using testing::Problem;

constexpr int kKeptLayers = 6;
constexpr int kKeptPageTokens = 16;
constexpr int kKeptPages = 48;  // of a layer
// Rows up to here see the first seven pages; the others are named in vain, which takes no time.
constexpr int kFewKeys = 7 * kKeptPageTokens;

// The pages of all layers, those of a layer together, and queries for each: `rows` rows before
// position `end`.
class LayersOfAStep {
 public:
  LayersOfAStep(const OpTable& table, int rows, int end = kFewKeys)
      : table_(table),
        rows_(rows),
        problem_(MakeProblem(rows)),
        pages_(table, problem_),
        positions_(testing::Consecutive(end - rows, rows)) {}

  using Change = std::function<void(AttentionParams&, AttentionItem&)>;

  // Enqueues the op of one layer.
  absl::Status Attend(Stream& stream, int layer, AttentionResult& result,
                      const Change& change = nullptr) const {
    AttentionItem item;
    item.query = problem_.query.view().row_range(int64_t{layer} * rows_, rows_);
    item.positions = positions_;
    item.pages = pages_.views().first(kKeptPages);
    item.page_offset = static_cast<size_t>(layer) * kKeptPages * pages_.page_bytes();
    item.state = result.rows(int64_t{layer} * rows_, rows_);
    AttentionParams params = testing::MakeParams(problem_, {&item, 1});
    if (change) change(params, item);
    return table_.attention(stream, params);
  }

  // For ops that merge.
  AttentionResult Empty() const {
    AttentionResult result(problem_);
    std::fill(result.o.begin(), result.o.end(), 0.25f);
    std::fill(result.lse.begin(), result.lse.end(), 0.5f);
    return result;
  }

  // The layers from `first` on, each on a stream of its own.
  AttentionResult Apart(Backend& backend, int first = 0, int end = kKeptLayers,
                        const Change& change = nullptr) const {
    AttentionResult result = Empty();
    for (int layer = first; layer < end; ++layer) {
      const auto stream = backend.CreateStream(1).value();
      EXPECT_TRUE(Attend(*stream, layer, result, change).ok());
      EXPECT_TRUE(stream->Synchronize().ok());
    }
    return result;
  }

  // Bytes of uploads that one layer needs at most.
  size_t MostUploadsOfALayer(const DeviceInfo& device) const {
    WorkShape most;
    most.row_invariant = table_.row_invariant;
    most.shards = problem_.shards;
    most.attended_rows = rows_;
    most.items = 1;
    most.pages = problem_.shape;
    most.heads = problem_.heads();
    most.named_pages = kKeptPages;
    return MostUploads(most, device);
  }

 private:
  static Problem MakeProblem(int rows) {
    Problem problem;
    problem.shape = {kKeptPageTokens, 1, 16, 16, DType::kBF16};
    problem.group = 2;
    problem.end = kKeptLayers * kKeptPages * kKeptPageTokens;
    problem.positions = testing::Consecutive(0, kKeptLayers * rows);
    testing::FillProblem(problem, 1700 + rows);
    return problem;
  }

  const OpTable table_;
  const int rows_;
  const Problem problem_;
  const PagedSequence pages_;
  const std::vector<int32_t> positions_;
};

class KeptAttentionTest : public ::testing::Test {
 protected:
  ~KeptAttentionTest() override { EmulatedDevice::Get().copy_error = 0; }

  // A stream with so many bytes for uploads, and no more.
  std::unique_ptr<Stream> StreamOf(size_t uploads) {
    constexpr size_t kScratch = 1 << 20;
    uploads = (uploads + 255) / 256 * 256;
    memory_.push_back(backend_->Allocate(kScratch + uploads).value());
    auto stream = backend_->CreateStream(1).value();
    EXPECT_TRUE(stream->UseWorkspace(memory_.back().data(), {kScratch, uploads}).ok());
    return stream;
  }
  DeviceInfo device() const { return AsCudaStream(*backend_->CreateStream(1).value()).device(); }

  std::unique_ptr<Backend> backend_ = CreateCudaBackend(0).value();
  std::vector<DeviceBuffer> memory_;
};

// An area for the arrays of one layer, and what each needs for its items: were pages and plans
// uploaded in each, the host would have to wait for room.
TEST_F(KeptAttentionTest, PagesAreUploadedOnceHoweverManyLayersThereAre) {
  constexpr size_t kItems = 320;
  constexpr int kManyKeys = kKeptPages * kKeptPageTokens;  // so many that units are divided
  for (const OpTable& table : {Ops(), HopperOps(), InvariantOps(), InvariantHopperOps()}) {
    for (const auto& [rows, end] : {std::pair(3, kManyKeys), std::pair(24, kFewKeys)}) {
      if (end == kManyKeys && table.name != Ops().name) continue;
      SCOPED_TRACE(absl::StrCat(table.name, ", ", rows, " rows"));
      const LayersOfAStep layers(table, rows, end);
      const auto stream = StreamOf(layers.MostUploadsOfALayer(device()) + kKeptLayers * kItems);
      AttentionResult result = layers.Empty();
      const int64_t waits = EmulatedDevice::Get().host_waits;
      for (int layer = 0; layer < kKeptLayers; ++layer) {
        ASSERT_TRUE(layers.Attend(*stream, layer, result).ok());
      }
      EXPECT_EQ(EmulatedDevice::Get().host_waits, waits) << "the area was filled anew";
      ASSERT_TRUE(stream->Synchronize().ok());
      EXPECT_TRUE(result == layers.Apart(*backend_));
    }
  }
}

// Other ops upload too, and the area has room for what a layer needs and no more.
TEST_F(KeptAttentionTest, AnAreaThatIsFilledAnewLosesNothing) {
  const std::vector<int32_t> others(200);
  for (const OpTable& table : {Ops(), InvariantOps()}) {
    const LayersOfAStep layers(table, 3);
    const AttentionResult expected = layers.Apart(*backend_);
    for (const bool held : {false, true}) {
      SCOPED_TRACE(absl::StrCat(table.name, ", held ", held));
      const auto stream = StreamOf(layers.MostUploadsOfALayer(device()));
      for (int turn = 0; turn < 2; ++turn) {
        AttentionResult result = layers.Empty();
        const auto graph = held ? stream->BeginGraph().value() : nullptr;
        for (int layer = 0; layer < kKeptLayers; ++layer) {
          const auto uploaded = AsCudaStream(*stream).UploadOne(std::span<const int32_t>(others));
          ASSERT_TRUE(uploaded.ok());
          ASSERT_TRUE(layers.Attend(*stream, layer, result).ok());
        }
        if (held) {
          ASSERT_TRUE(graph->Launch().ok());
        }
        ASSERT_TRUE(stream->Synchronize().ok());
        EXPECT_TRUE(result == expected) << turn;
      }
    }
  }
}

TEST_F(KeptAttentionTest, ArraysThatNeverWereSentAreNotUsed) {
  const LayersOfAStep layers(Ops(), 3);
  const AttentionResult expected = layers.Apart(*backend_, 1, 2);
  for (const bool fails : {false, true}) {
    const auto stream = backend_->CreateStream(1).value();
    AttentionResult result = layers.Empty();
    {
      // Dropped, or not launched since its arrays cannot be copied.
      const auto graph = stream->BeginGraph().value();
      AttentionResult dropped = layers.Empty();
      ASSERT_TRUE(layers.Attend(*stream, 1, dropped).ok());
      if (fails) {
        EmulatedDevice::Get().copy_error = kMemoryAllocation;
        EXPECT_FALSE(graph->Launch().ok());
        EmulatedDevice::Get().copy_error = 0;
      }
    }
    ASSERT_TRUE(layers.Attend(*stream, 1, result).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    EXPECT_TRUE(result == expected) << "fails " << fails;
  }
}

TEST_F(KeptAttentionTest, OpsThatDifferInMoreThanAddressesArePlannedAnew) {
  const std::vector<int32_t> begins = {0, 1, 3};  // of query blocks
  const std::vector<int32_t> offsets = {0, 2, 5};
  const std::vector<int32_t> named[] = {{0, 3, 0, 5, 6}, {0, 4, 0, 5, 6}};
  const std::vector<int32_t> earlier = testing::Consecutive(50, 3);
  const std::vector<DilatedBranch> branches[] = {{{64, 2}}, {{64, 4}}};
  std::vector<KvPageView> pages;  // without the sixth
  const auto list = [&](int which) {
    return [&, which](AttentionParams&, AttentionItem& item) {
      item.blocks = {false, 1, begins, offsets, named[which]};
    };
  };
  const std::pair<std::string, LayersOfAStep::Change> changes[] = {
      {"nothing", [](AttentionParams&, AttentionItem&) {}},
      {"positions", [&](AttentionParams&, AttentionItem& item) { item.positions = earlier; }},
      {"fewer pages",
       [](AttentionParams&, AttentionItem& item) { item.pages = item.pages.first(5); }},
      {"a gap",
       [&](AttentionParams&, AttentionItem& item) {
         pages.assign(item.pages.begin(), item.pages.end());
         pages.erase(pages.begin() + 5);
         item.pages = pages;
       }},
      {"leaves",
       [](AttentionParams&, AttentionItem& item) {
         item.first_leaf = 2;
         item.leaves = 2;
       }},
      {"merges", [](AttentionParams&, AttentionItem& item) { item.merges = true; }},
      {"window", [](AttentionParams& params, AttentionItem&) { params.window = 40; }},
      {"lists", list(0)},
      {"other lists", list(1)},
      {"branches", [&](AttentionParams&, AttentionItem& item) { item.branches = branches[0]; }},
      {"other branches",
       [&](AttentionParams&, AttentionItem& item) { item.branches = branches[1]; }},
  };
  for (const OpTable& table : {Ops(), InvariantOps()}) {
    const LayersOfAStep layers(table, 3);
    const auto stream = backend_->CreateStream(1).value();
    for (int layer = 0; layer < 2; ++layer) {
      for (const auto& [name, change] : changes) {
        AttentionResult result = layers.Empty();
        ASSERT_TRUE(layers.Attend(*stream, layer, result, change).ok());
        ASSERT_TRUE(stream->Synchronize().ok());
        EXPECT_TRUE(result == layers.Apart(*backend_, layer, layer + 1, change))
            << table.name << ", " << name << ", layer " << layer;
      }
    }
  }
}

// Of more ops than are kept, the latest are.
TEST(KeptAttentionEntriesTest, TheOldestGoesFirst) {
  KeptAttention kept;
  std::vector<int32_t> positions = {0};
  AttentionItem item;
  item.positions = positions;
  AttentionParams params;
  params.items = {&item, 1};
  const auto find = [&](int32_t position, uint64_t turn) {
    positions[0] = position;
    return kept.Find(params, {}, false, turn);
  };
  constexpr auto kMost = static_cast<int32_t>(KeptAttention::kMost);
  for (int32_t position = 0; position <= kMost; ++position) {
    ASSERT_EQ(find(position, 1), nullptr);
    PlacedAttention placed;
    placed.partial_rows = position;
    kept.Keep(std::move(placed), 1);
  }
  EXPECT_EQ(find(0, 1), nullptr);
  for (int32_t position = 1; position <= kMost; ++position) {
    const PlacedAttention* const placed = find(position, 1);
    ASSERT_NE(placed, nullptr) << position;
    EXPECT_EQ(placed->partial_rows, position);
  }
  EXPECT_EQ(find(kMost, 2), nullptr);
  EXPECT_EQ(find(kMost, 1), nullptr) << "what another turn had is gone";
}

}  // namespace
}  // namespace annulus::cuda
