// What ops take of a stream's workspace against what was planned for them.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/tuning/attention_path.h"
#include "kernels/cuda/tuning/attention_plan.h"
#include "kernels/cuda/tuning/invariant_plan.h"
#include "kernels/cuda/tuning/scores_plan.h"
#include "kernels/cuda/tuning/workspace_plan.h"
#include "tests/kernels/cpu/attention_fixture.h"
#include "tests/support/cuda/emulated_device.h"

namespace annulus::cuda {
namespace {

using testing::AttentionResult;
using ::testing::HasSubstr;
using testing::PagedSequence;
using testing::Problem;
using testing::TestMatrix;

DeviceInfo DeviceOf(int major, int minor, int multiprocessors) {
  DeviceInfo device;
  device.major = major;
  device.minor = minor;
  device.multiprocessors = multiprocessors;
  device.shared_bytes = SharedBytes(major, minor);
  return device;
}

class WorkspaceTest : public ::testing::Test {
 protected:
  WorkspaceTest() : backend_(CreateCudaBackend(0).value()), table_(Ops()) {}
  ~WorkspaceTest() override {
    EmulatedDevice::Get().products = false;
    EmulatedDevice::Get().no_way_for_scales = false;
    EmulatedDevice::Get().held_by_others = 0;
    EmulatedDevice::Get().major = 9;
    EmulatedDevice::Get().minor = 0;
  }

  template <class... T>
  std::common_type_t<T...> OneOf(T... values) {
    const std::common_type_t<T...> all[] = {values...};
    return all[random_() % sizeof...(values)];
  }
  int Draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  // A stream that has what was planned and may take nothing more.
  void UsePlanned(const WorkspaceBytes& planned) {
    stream_.reset();
    memory_ = backend_->Allocate(std::max<size_t>(1, planned.total())).value();
    stream_ = backend_->CreateStream(1).value();
    ASSERT_TRUE(stream_->UseWorkspace(memory_.data(), planned).ok());
    calls_ = EmulatedDevice::Get().memory_calls;
  }
  void ExpectNothingTaken() {
    ASSERT_TRUE(stream_->Synchronize().ok());
    ASSERT_EQ(EmulatedDevice::Get().memory_calls, calls_);
    ASSERT_EQ(stream_->workspace_bytes(), memory_.size());
  }

  const uint32_t seed_ = std::random_device()();
  std::mt19937 random_{seed_};
  std::unique_ptr<Backend> backend_;
  const OpTable table_;
  DeviceBuffer memory_;
  std::unique_ptr<Stream> stream_;
  int64_t calls_ = 0;
};

// On every kind of device, with a library and without. Products of fewer rows may go another way:
// the largest of all that a shape allows is what was planned. A library with no way for scales
// takes more of it than one that has.
TEST_F(WorkspaceTest, ProductsTakeWhatIsPlannedForThem) {
  SCOPED_TRACE(::testing::Message() << "seed " << seed_);
  EmulatedDevice::Get().no_way_for_scales = true;
  for (int turn = 0; turn < (kSanitized ? 12 : 48); ++turn) {
    EmulatedDevice::Get().products = random_() % 2 == 0;
    EmulatedDevice::Get().major = OneOf(8, 8, 9, 10);
    EmulatedDevice::Get().minor = EmulatedDevice::Get().major == 8 ? OneOf(0, 9) : 0;
    const bool library = EmulatedDevice::Get().products;
    ProductShape shape;
    shape.activations = OneOf(Activations::kFloat, Activations::kFp8);
    shape.dtype = shape.activations == Activations::kFp8
                      ? DType::kF8E4M3
                      : OneOf(DType::kBF16, DType::kBF16, DType::kF32, DType::kF16, DType::kI8,
                              DType::kI4G32);
    shape.in = Draw(1, 150);
    shape.out = 4 * Draw(1, 8);  // that the library takes
    shape.rows = OneOf(Draw(1, 16), Draw(17, 127), Draw(128, 150), Draw(256, 270));
    shape.bias = random_() % 2 == 0;
    shape.accumulate = random_() % 2 == 0;
    const auto backend = CreateCudaBackend(0).value();
    std::vector<float> dense(static_cast<size_t>(shape.out * shape.in), 0.25f);
    const PackedMatrix weight =
        PackMatrix(table_, *backend, {dense.data(), DType::kF32, shape.out, shape.in}, shape.dtype)
            .value();
    const std::vector<float> bias(static_cast<size_t>(shape.out), 1.0f);
    TestMatrix input(shape.rows, shape.in, 3);
    input.FillNormal(random_);
    const auto stream = backend->CreateStream(1).value();
    const DeviceInfo device = AsCudaStream(*stream).device();
    // In floats; from a multiple of 16 bytes on.
    const DeviceBuffer output = backend->Allocate(shape.rows * shape.out * sizeof(float)).value();
    const size_t planned = MostProductScratch(shape, device, library);
    for (const int64_t rows :
         {std::min<int64_t>(16, shape.rows), std::min<int64_t>(127, shape.rows),
          std::min<int64_t>(255, shape.rows), shape.rows}) {
      LinearParams params;
      params.input = input.view().row_range(0, rows);
      params.weight = &weight;
      params.bias = shape.bias ? bias.data() : nullptr;
      auto* const to = const_cast<float*>(output.as<float>());
      std::fill_n(to, shape.rows * shape.out, 0.0f);
      params.output = {to, rows, shape.out, shape.out};
      params.accumulate = shape.accumulate;
      params.activations = shape.activations;
      ASSERT_TRUE(table_.linear(*stream, params).ok());
      ASSERT_LE(stream->workspace_bytes(), planned) << rows << " rows, turn " << turn;
    }
    ASSERT_TRUE(stream->Synchronize().ok());
    EXPECT_EQ(stream->workspace_bytes(), planned)
        << shape.rows << " rows, " << shape.in << " -> " << shape.out << ", "
        << DTypeName(shape.dtype) << ", library " << library << ", turn " << turn;
  }
}

// Plans alone, of any size: items of some rows and pages on devices of some multiprocessors.
TEST_F(WorkspaceTest, PartsOfAttentionStayWithinTheirBound) {
  SCOPED_TRACE(::testing::Message() << "seed " << seed_);
  double nearest = 0;
  for (int turn = 0; turn < 300; ++turn) {
    const DeviceInfo device = DeviceOf(OneOf(8, 9), 0, Draw(1, 140));
    AttentionParams params;
    params.shape = {OneOf(16, 64), Draw(1, 8), OneOf(64, 128, 256), OneOf(64, 128, 200),
                    OneOf(DType::kF32, DType::kBF16, DType::kI8)};
    params.heads = params.shape.kv_heads * OneOf(1, 3, 8);
    std::vector<std::vector<int32_t>> positions;
    std::vector<std::vector<KvPageView>> pages;
    const int count = Draw(1, 9);
    for (int i = 0; i < count; ++i) {
      const int32_t tokens = params.shape.page_tokens * Draw(1, 400);
      const int32_t rows = std::min<int32_t>(tokens, OneOf(1, Draw(1, 40), Draw(1, 1000)));
      positions.push_back(testing::Consecutive(tokens - rows, rows));
      auto& views = pages.emplace_back();
      for (int32_t first = 0; first < tokens; first += params.shape.page_tokens) {
        views.push_back({nullptr, first, params.shape.page_tokens});
      }
    }
    std::vector<AttentionItem> items(positions.size());
    WorkShape most;
    most.pages = params.shape;
    most.heads = params.heads;
    for (size_t i = 0; i < items.size(); ++i) {
      items[i].positions = positions[i];
      items[i].pages = pages[i];
      most.attended_rows += static_cast<int64_t>(positions[i].size());
      most.named_pages += std::ssize(pages[i]);
    }
    params.items = items;
    params.shards = most.shards = OneOf(1, 8, 16);
    for (const bool hopper : {false, true}) {
      const int unit_rows = PathOfPrefill(device, params, hopper).rows;
      const AttentionPlan plan =
          PlanAttention(params, device.multiprocessors, unit_rows, 1 + turn % kMostBlocks);
      const size_t taken =
          static_cast<size_t>(plan.partial_rows) * (params.shape.v_dim + 1) * sizeof(float);
      const size_t bound = MostAttentionScratch(most, device);
      ASSERT_LE(taken, bound) << "turn " << turn;
      if (bound > 0) nearest = std::max(nearest, static_cast<double>(taken) / bound);
      most.row_invariant = true;
      const InvariantShape shape{PathOfInvariant(device, params, hopper)->rows, 1};
      const int64_t rows = PlanInvariantAttention(params, shape, MostRoundRows(params.shape.v_dim))
                               .attention.partial_rows;
      ASSERT_LE(rows * (params.shape.v_dim + 1) * sizeof(float), MostAttentionScratch(most, device))
          << "turn " << turn;
      most.row_invariant = false;
    }
  }
  EXPECT_GE(nearest, 0.5) << "a bound that is far from everything";
}

// The same of packed queries: those of a rank's pages of a chunk, or a sample of single rows.
TEST_F(WorkspaceTest, PackedQueriesStayWithinTheirBound) {
  SCOPED_TRACE(::testing::Message() << "seed " << seed_);
  for (int turn = 0; turn < 300; ++turn) {
    BlockScoresParams params;
    params.shape = {OneOf(16, 64), Draw(1, 8), OneOf(64, 80, 128, 256), 128,
                    OneOf(DType::kBF16, DType::kI8)};
    params.heads = params.shape.kv_heads * OneOf(1, 3, 8);
    params.block_tokens = params.shape.page_tokens;
    params.stride = OneOf(1, 8, 16);
    const int32_t begin = Draw(0, 1000);
    const int ranks = Draw(1, 3);
    std::vector<int32_t> positions;
    for (int32_t row = begin, end = begin + Draw(300, 3000); row < end; ++row) {
      const bool sampled = params.stride > 1 || (row % 90 == 0 && positions.size() < 16);
      if (row / params.shape.page_tokens % ranks == 0 && sampled) positions.push_back(row);
    }
    if (positions.empty()) continue;
    BlockScoresItem item;
    item.positions = positions;
    params.items = {&item, 1};
    WorkShape most;
    most.rows = params.stride == 1 ? 1 : std::ssize(positions);
    most.exact_rows = params.stride == 1 ? std::ssize(positions) : 0;
    most.pages = params.shape;
    most.heads = params.heads;
    most.lists = true;
    const TensorScoresPlan plan = PlanTensorScores(params, LayoutOf(params.shape).k_stride);
    const size_t taken = static_cast<size_t>(plan.packed_tiles) * kScoredRows *
                         (static_cast<size_t>(plan.depth) * sizeof(uint16_t) + sizeof(float));
    const size_t bound = MostScoresScratch(most);
    ASSERT_LE(taken, bound) << "turn " << turn;
    // Two groups more may be a tile more; rows of the other strides are planned at once.
    if (params.stride == 16 && positions.size() > 900) {
      EXPECT_LE(bound, 2 * taken) << "turn " << turn << ", " << positions.size() << " rows";
    }
  }
}

// Attention and scores, and their arrays: random shapes up to what was planned.
TEST_F(WorkspaceTest, OpsUpToTheirShapeTakeNothingMore) {
  SCOPED_TRACE(::testing::Message() << "seed " << seed_);
  for (int turn = 0; turn < (kSanitized ? 6 : 24); ++turn) {
    const OpTable table = OneOf(Ops(), InvariantOps(), InvariantHopperOps());
    Problem problem;
    problem.shape = {OneOf(16, 32), Draw(1, 3), Draw(1, 90), Draw(1, 90),
                     OneOf(DType::kF32, DType::kBF16, DType::kI8)};
    problem.group = Draw(1, 4);
    problem.end = Draw(60, 500);
    const auto rows = static_cast<int32_t>(Draw(1, 60));
    // Rows end within a tile of any stride at both sides.
    problem.positions = testing::Consecutive(problem.end - rows, rows);
    problem.window = OneOf(0, 0, 50);
    testing::FillProblem(problem, random_());
    const PagedSequence pages(table, problem);
    WorkShape most;
    most.row_invariant = table.row_invariant;
    most.shards = problem.shards;
    most.rows = most.attended_rows = rows;
    most.exact_rows = rows;
    most.items = 1;
    most.pages = problem.shape;
    most.heads = problem.heads();
    most.named_pages = std::ssize(pages.views());
    most.lists = true;
    const DeviceInfo device = AsCudaStream(*backend_->CreateStream(1).value()).device();
    WorkspaceBytes planned = PlanWorkspace(most, device, false);
    planned.uploads = MostUploads(most, device);  // not the least that any stream has
    ASSERT_NO_FATAL_FAILURE(UsePlanned(planned));
    AttentionResult result(problem);
    std::vector<AttentionItem> items = {
        testing::MakeItem(problem, pages, 0, problem.rows(), result)};
    // Every list names every page, for every kv head.
    const int32_t block = problem.shape.page_tokens;
    std::vector<int32_t> begins;
    for (int32_t r = 0; r < rows; ++r) {
      if (r == 0 || problem.positions[r] % block == 0) begins.push_back(r);
    }
    const auto lists = static_cast<int32_t>(begins.size()) * problem.shape.kv_heads;
    begins.push_back(rows);
    std::vector<int32_t> offsets, named;
    for (int32_t list = 0; list <= lists; ++list) {
      offsets.push_back(list * static_cast<int32_t>(most.named_pages));
    }
    for (int32_t n = 0; n < offsets.back(); ++n) {
      named.push_back(n % static_cast<int32_t>(most.named_pages));
    }
    for (const bool listed : {false, true}) {
      if (listed) items[0].blocks = {false, problem.shape.kv_heads, begins, offsets, named};
      ASSERT_TRUE(table.attention(*stream_, testing::MakeParams(problem, items)).ok());
      ASSERT_NO_FATAL_FAILURE(ExpectNothingTaken()) << problem.name << ", lists " << listed;
    }
    for (const int32_t stride : {1, 8, 16}) {
      BlockScoresItem item;
      item.query = problem.query.view();
      item.positions = problem.positions;
      item.pages = pages.views();
      BlockScoresParams params;
      params.shape = problem.shape;
      params.heads = problem.heads();
      params.block_tokens = block;
      params.stride = stride;
      params.items = {&item, 1};
      std::vector<float> scores(static_cast<size_t>(CountRowGroups(item.positions, stride) *
                                                    params.heads * CountBlocks(item.pages, block)));
      item.scores = scores.data();
      ASSERT_TRUE(table.block_scores(*stream_, params).ok());
      ASSERT_NO_FATAL_FAILURE(ExpectNothingTaken()) << problem.name << ", stride " << stride;
    }
  }
}

TEST_F(WorkspaceTest, ChoicesOfTokensTakeNothingMore) {
  WorkShape most;
  most.pages = {16, 1, 16, 16, DType::kF32};
  most.heads = 1;
  most.sampled_rows = 3;
  most.vocabulary = 131;
  const DeviceInfo device = AsCudaStream(*backend_->CreateStream(1).value()).device();
  ASSERT_NO_FATAL_FAILURE(UsePlanned({0, MostUploads(most, device)}));
  std::vector<LogitEdit> edits;
  for (int32_t token = 0; token < most.vocabulary; ++token) edits.push_back({token, 1, 0});
  const std::vector<uint32_t> seen(static_cast<size_t>(SeenWords(most.vocabulary)));
  SampleRow row;
  row.edits = edits;
  row.seen = seen;
  const std::vector<uint32_t> allowed(seen.size(), 1);
  row.allowed = allowed;
  const std::vector<SampleRow> rows(static_cast<size_t>(most.sampled_rows), row);
  TestMatrix logits(most.sampled_rows, most.vocabulary);
  logits.FillNormal(random_);
  std::vector<int32_t> tokens(rows.size());
  ASSERT_TRUE(table_.sample(*stream_, {logits.view(), rows, tokens.data()}).ok());
  ExpectNothingTaken();
}

// A device that others have filled: what was planned works, what is beyond is refused, and works
// where there is room again.
TEST_F(WorkspaceTest, WhatWasNotPlannedIsRefusedAloneWhereNothingIsFree) {
  constexpr size_t kPlanned = 4096;
  ASSERT_NO_FATAL_FAILURE(UsePlanned({kPlanned, kPlanned}));
  CudaStream& own = AsCudaStream(*stream_);
  std::byte* const planned = own.Scratch(kPlanned).value();
  EXPECT_EQ(planned, memory_.data());
  EmulatedDevice::Get().held_by_others = EmulatedDevice::kMemoryBytes;
  for (int turn = 0; turn < 2; ++turn) {
    for (const absl::Status& refused :
         {own.Scratch(kPlanned + 1).status(), own.BeginUpload(kPlanned + 1)}) {
      EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
      EXPECT_THAT(std::string(refused.message()),
                  HasSubstr("stop other programs that use the device"));
    }
    EXPECT_EQ(own.Scratch(kPlanned).value(), planned);
    EXPECT_TRUE(own.BeginUpload(kPlanned).ok());
    EXPECT_EQ(own.workspace_bytes(), 2 * kPlanned);
  }
  EmulatedDevice::Get().held_by_others = 0;
  EXPECT_TRUE(own.Scratch(kPlanned + 1).ok());
  EXPECT_TRUE(own.BeginUpload(kPlanned + 1).ok());
  EXPECT_GT(own.workspace_bytes(), 4 * kPlanned);
}

// A step that is held has what its area holds; the rest goes out before, and nothing grows.
TEST_F(WorkspaceTest, AHeldStepThatDoesNotFitIsCut) {
  ASSERT_NO_FATAL_FAILURE(UsePlanned({256, 4096}));
  CudaStream& own = AsCudaStream(*stream_);
  TestMatrix values(1, 5);
  values.FillNormal(random_);
  std::vector<int32_t> array(500);
  const auto graph = stream_->BeginGraph().value();
  for (int i = 0; i < 4; ++i) {
    std::fill(array.begin(), array.end(), i);
    const auto uploaded = own.UploadOne(std::span<const int32_t>(array));
    ASSERT_TRUE(uploaded.ok());
    ASSERT_TRUE(Scale(*stream_, {values.view(), 2}).ok());
  }
  ASSERT_TRUE(graph->Launch().ok());
  ExpectNothingTaken();
  EXPECT_EQ(stream_->graph_counts().cut_by_memory, 1);  // two arrays of 2000 bytes at a time
}

TEST_F(WorkspaceTest, FreeMemoryIsThatOfTheDeviceAlone) {
  EmulatedDevice::Get().devices = 2;
  const auto backends = CreateCudaBackends(2).value();
  const auto free = [&](int device) { return backends->OnDevice(device).FreeMemory().value(); };
  const size_t first = free(0);
  const size_t second = free(1);
  const DeviceBuffer block = backends->OnDevice(1).Allocate(1000).value();
  EXPECT_EQ(free(0), first);
  EXPECT_EQ(free(1), second - 1000);
  EmulatedDevice::Get().held_by_others = 5000;
  EXPECT_EQ(free(0), first - 5000);
  EmulatedDevice::Get().devices = 1;
}

TEST(PlannedGpusTest, AreLikeThoseThatAreThere) {
  const auto planned = PlanCudaBackends("h200", 0, 4);
  ASSERT_TRUE(planned.ok()) << planned.status();
  const BackendCapabilities& capabilities = (*planned)->capabilities();
  EXPECT_EQ(capabilities.name, "cuda");
  EXPECT_EQ(capabilities.devices, 4);
  EXPECT_FALSE(capabilities.host_accessible);
  EXPECT_EQ(capabilities.memory_bytes, size_t{139} << 30);
  EXPECT_EQ(capabilities.reserved_bytes, size_t{512} << 20);
  WorkShape shape;
  shape.rows = 2048;
  shape.products = {{2048, 4096, 4096, DType::kBF16}};
  EXPECT_EQ((*planned)->PlanWorkspace(shape).total(),
            PlanWorkspace(shape, DeviceOf(9, 0, 132), true).total());
  EXPECT_EQ((*PlanCudaBackends("l4", size_t{1} << 30, 1))->capabilities().memory_bytes,
            size_t{1} << 30);
  EXPECT_THAT(PlanCudaBackends("abacus", 0, 1).status().message(),
              ::testing::AllOf(HasSubstr("abacus"), HasSubstr("h100-80gb")));
}

}  // namespace
}  // namespace annulus::cuda
