// Launches that a stream holds back and hands over as graphs, on an emulated GPU.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/ops.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/cuda/emulated_streams.h"

namespace annulus::cuda {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kColumns = 40;

// Streams are late: nothing is done before somebody waits for it.
class GraphTest : public ::testing::Test {
 protected:
  GraphTest() {
    EmulatedStreams::Get().set_late(true);
    backend_ = CreateCudaBackend(0).value();
    stream_ = backend_->CreateStream(1).value();
    graphs_before_ = EmulatedDevice::Get().graphs;
    runs_before_ = EmulatedDevice::Get().graph_runs;
  }
  ~GraphTest() override {
    stream_.reset();
    EXPECT_EQ(EmulatedDevice::Get().graphs, graphs_before_) << "graphs outlive their stream";
    EmulatedStreams::Get().set_late(false);
    EmulatedDevice& device = EmulatedDevice::Get();
    device.graph_build_error = 0;
    device.graph_set_error = 0;
    device.graph_run_error = 0;
    device.products = false;
  }

  MatrixView Take(int64_t rows, float value) {
    buffers_.push_back(backend_->Allocate(static_cast<size_t>(rows * kColumns) * 4).value());
    auto* const data = reinterpret_cast<float*>(buffers_.back().data());
    std::fill_n(data, rows * kColumns, value);
    return {data, rows, kColumns, kColumns};
  }
  static std::vector<float> Seen(MatrixView matrix) {
    return {matrix.data, matrix.data + matrix.rows * matrix.cols};
  }

  void Multiply(MatrixView values, const std::vector<float>& factors) {
    for (const float factor : factors) ASSERT_TRUE(Scale(*stream_, {values, factor}).ok());
  }
  std::unique_ptr<StepGraph> Begin() { return stream_->BeginGraph().value(); }
  // A step of these launches and no other; waits for it.
  absl::Status Step(MatrixView values, const std::vector<float>& factors) {
    const auto graph = Begin();
    Multiply(values, factors);
    const absl::Status status = graph->Launch();
    EXPECT_TRUE(stream_->Synchronize().ok());
    return status;
  }
  GraphCounts counts() const { return stream_->graph_counts(); }
  int64_t runs() const { return EmulatedDevice::Get().graph_runs - runs_before_; }
  CudaStream& stream() { return static_cast<CudaStream&>(*stream_); }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  std::vector<DeviceBuffer> buffers_;
  int graphs_before_ = 0;
  int64_t runs_before_ = 0;
};

TEST_F(GraphTest, NothingIsDoneBeforeTheLaunch) {
  EmulatedStreams::Get().set_late(false);
  const MatrixView values = Take(3, 1);
  const int64_t launches = EmulatedDevice::Get().launches;
  const auto graph = Begin();
  Multiply(values, {2, 3, 5, 7, 11});
  EXPECT_THAT(Seen(values), Each(1));
  EXPECT_EQ(runs(), 0);
  ASSERT_TRUE(graph->Launch().ok());
  EXPECT_THAT(Seen(values), Each(2 * 3 * 5 * 7 * 11));
  EXPECT_EQ(runs(), 1);
  EXPECT_EQ(EmulatedDevice::Get().launches, launches);
  EXPECT_EQ(counts().whole, 1);
  EXPECT_EQ(counts().in_pieces, 0);
  EXPECT_EQ(counts().replayed, 5);
  EXPECT_EQ(counts().single, 0);
  EXPECT_EQ(counts().cuts(), 0);
  // From here on ops go out one by one again.
  Multiply(values, {2});
  EXPECT_THAT(Seen(values), Each(2 * 3 * 5 * 7 * 11 * 2));
  EXPECT_EQ(EmulatedDevice::Get().launches, launches + 1);
}

// Steps that are alike tell the device nothing but "again"; those that differ, what differs.
TEST_F(GraphTest, OnlyWhatDiffersFromTheLastStepIsSet) {
  const MatrixView values = Take(2, 1);
  const auto expect = [&](float product, int64_t built, int64_t updated) {
    EXPECT_THAT(Seen(values), Each(product));
    EXPECT_EQ(counts().built, built);
    EXPECT_EQ(counts().updated, updated);
    std::fill_n(values.data, values.rows * values.cols, 1.0f);
  };
  ASSERT_TRUE(Step(values, {2, 3, 5, 7}).ok());
  expect(210, 1, 0);
  ASSERT_TRUE(Step(values, {2, 3, 5, 7}).ok());
  expect(210, 1, 0);
  ASSERT_TRUE(Step(values, {2, 11, 5, 7}).ok());
  expect(770, 1, 1);
  ASSERT_TRUE(Step(values.row_range(0, 1), {2, 11, 5, 7}).ok());  // another grid
  EXPECT_EQ(counts().updated, 5);
  EXPECT_EQ(values.data[0], 770);
  EXPECT_EQ(values.row(1)[0], 1);
  std::fill_n(values.data, values.rows * values.cols, 1.0f);
  ASSERT_TRUE(Step(values, {2, 3, 5, 7, 11}).ok());  // another number of launches
  expect(2310, 2, 5);
  EXPECT_EQ(counts().whole, 5);
  EXPECT_EQ(counts().replayed, 4 * 4 + 5);
}

// Another kernel in the same place is told like an argument.
TEST_F(GraphTest, AKernelMayTakeAnothersPlace) {
  const MatrixView values = Take(1, 1);
  ASSERT_TRUE(Step(values, {2, 2, 2, 2}).ok());
  {
    const auto graph = Begin();
    Multiply(values, {2, 2, 2});
    ASSERT_TRUE(SoftCap(*stream_, {values, 8}).ok());
    ASSERT_TRUE(graph->Launch().ok());
    ASSERT_TRUE(stream_->Synchronize().ok());
  }
  EXPECT_NEAR(values.data[0], 8 * std::tanh(128.0 / 8), 1e-5);
  EXPECT_EQ(counts().built, 1);
  EXPECT_EQ(counts().updated, 1);
}

// What ops are given lies where steps before left it, and the area is free for the next step only
// once the device has read it.
TEST_F(GraphTest, HostArraysAreKeptUntilTheGraphHasReadThem) {
  constexpr int64_t kRows = 64;
  const MatrixView source = Take(kRows, 0);
  for (int64_t row = 0; row < kRows; ++row) {
    std::fill_n(source.row(row), kColumns, static_cast<float>(row));
  }
  std::vector<MatrixView> targets;
  for (int step = 0; step < 3; ++step) {
    targets.push_back(Take(5, -1));
    const auto graph = Begin();
    for (int32_t i = 0; i < 5; ++i) {
      std::vector<int32_t> rows = {7 * i + step};
      ASSERT_TRUE(GatherRows(*stream_, {source, rows, targets[step].row_range(i, 1)}).ok());
      rows[0] = 0;
    }
    ASSERT_TRUE(graph->Launch().ok());  // and nobody waits
  }
  ASSERT_TRUE(stream_->Synchronize().ok());
  for (int step = 0; step < 3; ++step) {
    for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(targets[step].row(i)[0], 7 * i + step) << step;
  }
  EXPECT_EQ(counts().built, 1);
  EXPECT_EQ(counts().updated, 2 * 5);  // the targets; arrays are where they were
}

// Whatever needs its place behind launches gets it, and is counted.
TEST_F(GraphTest, WorkBehindHeldLaunchesCutsTheGraph) {
  const MatrixView values = Take(1, 1);
  std::vector<float> copied(kColumns);
  const auto event = backend_->CreateEvent(false).value();
  const auto other = backend_->CreateStream(1).value();
  for (int step = 0; step < 2; ++step) {
    std::fill_n(values.data, kColumns, 1.0f);
    const auto graph = Begin();
    Multiply(values, {2, 2, 2, 2});
    ASSERT_TRUE(stream_->Synchronize().ok());
    EXPECT_THAT(Seen(values), Each(16));
    ASSERT_TRUE(stream_->Synchronize().ok());  // nothing is held
    Multiply(values, {2, 2, 2});               // few
    ASSERT_TRUE(backend_->Copy(*stream_, copied.data(), values.data, kColumns * 4).ok());
    EXPECT_THAT(copied, Each(128));
    Multiply(values, {2, 2, 2, 2, 2});
    ASSERT_TRUE(stream_->Record(*event).ok());
    ASSERT_TRUE(other->Await(*event).ok());
    ASSERT_TRUE(Scale(*other, {values, 3}).ok());
    ASSERT_TRUE(other->Synchronize().ok());
    EXPECT_THAT(Seen(values), Each(3 * 4096));
    Multiply(values, {2, 2, 2, 2});
    ASSERT_TRUE(stream_->Await(*event).ok());
    Multiply(values, {0.5f, 0.5f, 0.5f, 0.5f});
    ASSERT_TRUE(graph->Launch().ok());
    ASSERT_TRUE(stream_->Synchronize().ok());
    EXPECT_THAT(Seen(values), Each(3 * 4096));
  }
  const GraphCounts counts = this->counts();
  EXPECT_EQ(counts.whole, 0);
  EXPECT_EQ(counts.in_pieces, 2);
  EXPECT_EQ(counts.cut_by_wait, 2);
  EXPECT_EQ(counts.cut_by_copy, 2);
  EXPECT_EQ(counts.cut_by_event, 4);
  EXPECT_EQ(counts.cuts(), 8);
  EXPECT_EQ(counts.single, 2 * 3);
  EXPECT_EQ(counts.replayed, 2 * (4 + 5 + 4 + 4));
  EXPECT_EQ(counts.built, 4);  // in the first step; in the second all are alike
  EXPECT_EQ(counts.updated, 0);
}

// Arrays beyond the stream's area make it grow, behind what is held; then a step fits as a whole.
TEST_F(GraphTest, AnAreaThatIsTooSmallGrowsOnce) {
  const MatrixView values = Take(1, 1);
  std::vector<int32_t> array(100'000);
  const size_t before = stream_->workspace_bytes();
  for (int step = 0; step < 3; ++step) {
    const int32_t* uploaded = nullptr;
    const auto graph = Begin();
    for (int i = 0; i < 4; ++i) {
      std::iota(array.begin(), array.end(), 7 * step + i);
      uploaded = stream().UploadOne(std::span<const int32_t>(array)).value();
      Multiply(values, {2});
    }
    ASSERT_TRUE(graph->Launch().ok());
    ASSERT_TRUE(stream_->Synchronize().ok());
    EXPECT_TRUE(std::equal(array.begin(), array.end(), uploaded));
  }
  EXPECT_THAT(Seen(values), Each(1 << 12));
  EXPECT_GT(stream_->workspace_bytes(), before);
  EXPECT_EQ(counts().cut_by_memory, 1);
  EXPECT_EQ(counts().in_pieces, 1);
  EXPECT_EQ(counts().whole, 2);
}

// A library enqueues on its own, behind what is held and what its inputs need.
TEST_F(GraphTest, ALibrarysWorkCutsTheGraph) {
  EmulatedDevice::Get().products = true;
  const auto backend = CreateCudaBackend(0).value();
  stream_ = backend->CreateStream(1).value();
  const MatrixView input = Take(kLibraryRows, 1);
  const MatrixView output = Take(kLibraryRows, 0);
  const std::vector<float> ones(kColumns * kColumns, 1);
  const PackedMatrix weight =
      PackMatrix(Ops(), *backend, {ones.data(), DType::kF32, kColumns, kColumns}, DType::kBF16)
          .value();
  const auto graph = Begin();
  Multiply(input, {2, 2, 2});
  LinearParams params;
  params.input = input;
  params.weight = &weight;
  params.output = output;
  ASSERT_TRUE(Linear(*stream_, params).ok());
  ASSERT_TRUE(graph->Launch().ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_THAT(Seen(output), Each(8 * kColumns));
  EXPECT_EQ(counts().cut_by_library, 1);
  EXPECT_EQ(counts().cut_by_memory, 1);  // its scratch
  stream_.reset();
}

TEST_F(GraphTest, WhatIsNotLaunchedIsDropped) {
  const MatrixView source = Take(2, 1);
  const MatrixView target = Take(1, -1);
  const std::vector<int32_t> rows = {1};
  {
    const auto graph = Begin();
    Multiply(source, {2, 2, 2, 2, 2});
    ASSERT_TRUE(GatherRows(*stream_, {source, rows, target}).ok());
  }
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_THAT(Seen(source), Each(1));
  EXPECT_THAT(Seen(target), Each(-1));
  ASSERT_TRUE(GatherRows(*stream_, {source, rows, target}).ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_THAT(Seen(target), Each(1));
  EXPECT_EQ(counts().whole + counts().in_pieces, 0);
  EXPECT_EQ(runs(), 0);
}

TEST_F(GraphTest, AStepWithoutLaunchesIsNone) {
  ASSERT_TRUE(Begin()->Launch().ok());
  EXPECT_EQ(counts().whole + counts().in_pieces, 0);
}

// Marks are reached with the launches around them, and the time between is that of the launches.
TEST_F(GraphTest, MarksAreHeldLikeLaunches) {
  const MatrixView values = Take(1, 1);
  std::vector<std::unique_ptr<Event>> marks;
  for (int i = 0; i < 2; ++i) marks.push_back(backend_->CreateEvent(true).value());
  for (int step = 0; step < 2; ++step) {
    const auto graph = Begin();
    Multiply(values, {2});
    ASSERT_TRUE(stream_->Mark(*marks[0]).ok());
    Multiply(values, {2});
    ASSERT_TRUE(stream_->Mark(*marks[1]).ok());
    ASSERT_TRUE(graph->Launch().ok());
    ASSERT_TRUE(stream_->Synchronize().ok());
    EXPECT_GT(backend_->SecondsBetween(*marks[0], *marks[1]).value(), 0);
  }
  EXPECT_EQ(counts().whole, 2);
  EXPECT_EQ(counts().built, 1);
  EXPECT_EQ(counts().updated, 0);
  // A mark where a launch was is another graph.
  const auto graph = Begin();
  Multiply(values, {2, 2});
  for (const auto& mark : marks) ASSERT_TRUE(stream_->Mark(*mark).ok());
  ASSERT_TRUE(graph->Launch().ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(counts().built, 2);
}

// With nothing held a mark goes out at once, so an event that is awaited between two cuts nothing.
TEST_F(GraphTest, MarksWithNothingHeldAreNoPiece) {
  const MatrixView values = Take(1, 1);
  std::vector<std::unique_ptr<Event>> marks;
  for (int i = 0; i < 2; ++i) marks.push_back(backend_->CreateEvent(true).value());
  const auto other = backend_->CreateStream(1).value();
  const auto awaited = backend_->CreateEvent(false).value();
  ASSERT_TRUE(other->Record(*awaited).ok());
  const auto graph = Begin();
  ASSERT_TRUE(stream_->Mark(*marks[0]).ok());
  ASSERT_TRUE(stream_->Await(*awaited).ok());
  ASSERT_TRUE(stream_->Mark(*marks[1]).ok());
  Multiply(values, {2, 2, 2, 2});
  ASSERT_TRUE(graph->Launch().ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_GE(backend_->SecondsBetween(*marks[0], *marks[1]).value(), 0);
  EXPECT_EQ(counts().cuts(), 0);
  EXPECT_EQ(counts().whole, 1);
  EXPECT_EQ(counts().single, 0);
}

// A device that refuses is a status; nothing stays held, and the next step is as any other.
TEST_F(GraphTest, RefusalsAreStatuses) {
  EmulatedDevice& device = EmulatedDevice::Get();
  const MatrixView values = Take(1, 1);
  const auto expect_recovery = [&] {
    std::fill_n(values.data, kColumns, 1.0f);
    ASSERT_TRUE(Step(values, {2, 3, 5, 7}).ok());
    EXPECT_THAT(Seen(values), Each(210));
  };
  device.graph_build_error = kMemoryAllocation;
  const absl::Status refused = Step(values, {2, 2, 2, 2});
  device.graph_build_error = 0;
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("making a graph of 4 launches"));
  EXPECT_THAT(Seen(values), Each(1));
  expect_recovery();

  device.graph_run_error = kIllegalAddress;
  EXPECT_EQ(Step(values, {2, 2, 2, 2}).code(), absl::StatusCode::kUnavailable);
  device.graph_run_error = 0;
  expect_recovery();

  device.graph_set_error = kMemoryAllocation;
  EXPECT_EQ(Step(values, {9, 3, 5, 7}).code(), absl::StatusCode::kResourceExhausted);
  device.graph_set_error = 0;
  const int64_t built = counts().built;
  expect_recovery();  // by a new graph: the old one may know some of what was to be set
  EXPECT_EQ(counts().built, built + 1);
}

TEST_F(GraphTest, AGraphRefusesWhatIsNotItsOwn) {
  const MatrixView values = Take(1, 1);
  LaunchLog log;
  stream().handle()->held = &log;
  Multiply(values, {2, 3});
  log.AddEvent(nullptr);
  stream().handle()->held = nullptr;
  const GraphHandle graph = BuildGraph(0, log.held().first(2)).value();
  EXPECT_TRUE(SetInGraph(graph, 1, log.held()[0]).ok());
  EXPECT_EQ(SetInGraph(graph, 2, log.held()[0]).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SetInGraph(graph, 1, log.held()[2]).code(), absl::StatusCode::kInvalidArgument);
  // It has copies of what it was made of, and of what was set.
  log.Clear();
  ASSERT_TRUE(RunGraph(stream().handle(), graph).ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_THAT(Seen(values), Each(4));
  CloseGraph(graph);
}

using GraphDeathTest = GraphTest;

TEST_F(GraphDeathTest, NothingOvertakesWhatIsHeld) {
  const MatrixView values = Take(1, 1);
  const EventHandle event = OpenEvent(0, false).value();
  const auto graph = Begin();
  const StreamHandle handle = stream().handle();
  EXPECT_TRUE(StreamIdle(handle).value());  // nothing is held yet
  Multiply(values, {2});
  EXPECT_DEATH(StreamIdle(handle).IgnoreError(), "overtake");
  EXPECT_DEATH(RecordEvent(handle, event).IgnoreError(), "overtake");
  EXPECT_DEATH(CopyAsync(handle, values.data, values.data, 4).IgnoreError(), "overtake");
  EXPECT_DEATH(stream_->BeginGraph().IgnoreError(), "a graph inside of another");
  ASSERT_TRUE(graph->Launch().ok());
  EXPECT_DEATH(graph->Launch().IgnoreError(), "launched already");
  CloseEvent(event);
}

}  // namespace
}  // namespace annulus::cuda
