// Kernels that begin before the one in front has ended: that the emulation runs them so and finds
// kernels that do not wait, that graphs keep it, and that the steps of a decoded token have the
// same bits.
#include "kernels/cuda/common/overlap.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device_waits.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/trial.h"
#include "tests/kernels/cpu/cpu_test_util.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/cuda/emulated_streams.h"

namespace annulus::cuda {
namespace {

using testing::SameBits;
using testing::TestMatrix;

struct SetArguments {
  float* to;
  float value;
};
ANNULUS_KERNEL(kWarp, 1) SetKernel(ANNULUS_ARGUMENT SetArguments a) {
  LetNextBegin();
  if (Lane() == 0) *a.to = a.value;
}

// Reads before and after it waits.
struct LookArguments {
  const float* from;
  float* early;
  float* late;
};
ANNULUS_KERNEL(2 * kWarp, 1) LookKernel(ANNULUS_ARGUMENT LookArguments a) {
  LetNextBegin();
  const float early = *a.from;
  SyncThreads();
  WaitForEarlier();
  SyncThreads();
  if (ThreadIndex() != 0) return;
  *a.early = early;
  *a.late = *a.from;
}

struct NoArguments {
  int32_t waiting;  // threads
};
ANNULUS_KERNEL(kWarp, 1) ImpatientKernel(ANNULUS_ARGUMENT NoArguments a) {
  if (Lane() < a.waiting) WaitForEarlier();
}

// Streams are late: nothing is done before somebody waits for it.
class OverlapTest : public ::testing::Test {
 protected:
  OverlapTest() {
    EmulatedStreams::Get().set_late(true);
    const auto waits = std::make_shared<DeviceWaits>(std::chrono::seconds(60));
    stream_ = CudaStream::Create(FindDevices()->front(), waits, /*with_library=*/false).value();
    LetKernelsOverlap(*stream_, true);
  }
  ~OverlapTest() override {
    stream_.reset();
    EmulatedStreams::Get().set_late(false);
  }

  void Set(float* to, float value) {
    ASSERT_EQ(Launch<SetKernel>(stream_->handle(), {.threads = kWarp}, SetArguments{to, value}), 0);
  }
  void Look(const float* from, float* early, float* late) {
    const Grid grid = Overlapping(stream_->handle(), {.threads = 2 * kWarp});
    ASSERT_EQ(Launch<LookKernel>(stream_->handle(), grid, LookArguments{from, early, late}), 0);
  }
  void Wait() { ASSERT_TRUE(stream_->Synchronize().ok()); }

  std::unique_ptr<CudaStream> stream_;
  std::vector<float> values_ = std::vector<float>(8, -1.0f);
};

TEST_F(OverlapTest, WhatAKernelReadsTooEarlyIsOld) {
  float* const v = values_.data();
  Set(v, 5);
  Look(v, v + 1, v + 2);
  Wait();
  EXPECT_EQ(v[1], -1);
  EXPECT_EQ(v[2], 5);
  LetKernelsOverlap(*stream_, false);
  Set(v, 6);
  Look(v, v + 1, v + 2);
  Wait();
  EXPECT_EQ(v[1], 6);
  EXPECT_EQ(v[2], 6);
}

TEST_F(OverlapTest, EveryKernelOfAChainBeginsBeforeTheOneInFront) {
  float* const v = values_.data();
  Set(v, 5);
  Look(v, v + 1, v + 2);
  Look(v + 2, v + 3, v + 4);
  Look(v + 4, v + 5, v + 6);
  Wait();
  for (const int early : {1, 3, 5}) {
    EXPECT_EQ(v[early], -1) << early;
    EXPECT_EQ(v[early + 1], 5) << early;
  }
}

TEST_F(OverlapTest, NoKernelBeginsBeforeACopy) {
  float* const v = values_.data();
  DeviceBuffer device = testing::BackendOf(HopperOps()).Allocate(2 * sizeof(float)).value();
  float* const d = device.as<float>();
  d[0] = 1;
  d[1] = 2;
  ASSERT_TRUE(CopyAsync(stream_->handle(), d, d + 1, sizeof(float)).ok());
  Look(d, v, v + 1);
  Wait();
  EXPECT_EQ(v[0], 2);
}

// A graph has the edge of every launch, so a launch that begins in another way is another graph.
TEST_F(OverlapTest, GraphsAreMadeAnewWhereLaunchesOverlapOrNot) {
  float* const v = values_.data();
  const auto step = [&](bool overlap) {
    LetKernelsOverlap(*stream_, overlap);
    const auto graph = stream_->BeginGraph().value();
    for (float i = 0; i < 4; ++i) Set(v, i);
    Look(v, v + 1, v + 2);
    EXPECT_TRUE(graph->Launch().ok());
    Wait();
    EXPECT_EQ(v[2], 3);
  };
  const auto built = [&] { return stream_->graph_counts().built; };
  step(true);
  EXPECT_EQ(built(), 1);
  step(true);
  EXPECT_EQ(built(), 1);
  step(false);
  EXPECT_EQ(built(), 2);
  step(true);
  EXPECT_EQ(built(), 3);
  EXPECT_EQ(stream_->graph_counts().updated, 0);
}

TEST_F(OverlapTest, AGraphRefusesALaunchOfAnotherKind) {
  float* const v = values_.data();
  LaunchLog log;
  stream_->handle()->held = &log;
  Look(v, v + 1, v + 2);
  LetKernelsOverlap(*stream_, false);
  Look(v, v + 1, v + 2);
  stream_->handle()->held = nullptr;
  const GraphHandle graph = BuildGraph(0, log.held().first(1)).value();
  EXPECT_EQ(SetInGraph(graph, 0, log.held()[1]).code(), absl::StatusCode::kInvalidArgument);
  CloseGraph(graph);
}

using OverlapDeathTest = OverlapTest;

TEST_F(OverlapDeathTest, EveryThreadWaits) {
  const auto run = [&](int32_t waiting, bool overlaps) {
    Launch<ImpatientKernel>(stream_->handle(), {.threads = kWarp, .overlaps = overlaps},
                            NoArguments{waiting});
    Wait();
  };
  run(kWarp, true);
  run(0, false);
  EXPECT_DEATH(run(31, true), "thread 31 ended without waiting for earlier kernels");
}

TEST_F(OverlapDeathTest, OnlyOnDevicesThatCan) {
  EmulatedDevice::Get().major = 8;
  EXPECT_DEATH(Look(values_.data(), values_.data() + 1, values_.data() + 2),
               "kernels that overlap at compute capability 8.0");
  const auto waits = std::make_shared<DeviceWaits>(std::chrono::seconds(60));
  const auto old =
      CudaStream::Create(FindDevices()->front(), waits, /*with_library=*/false).value();
  EXPECT_DEATH(LetKernelsOverlap(*old, true), "compute capability 8.0; allowed: 9.0");
  EmulatedDevice::Get().major = 9;
}

constexpr int kHeads = 4;
constexpr int kKvHeads = 2;
constexpr int kDim = 16;
constexpr int64_t kHidden = kHeads * kDim;
constexpr int64_t kKeys = kKvHeads * kDim;
constexpr int64_t kWide = 96;
constexpr int32_t kTokens = 100;  // of a sequence, the new one included
constexpr int kExperts = 3;

// Keys and values of so many sequences, in pages of their own.
struct Pages {
  Pages(const OpTable& table, int64_t sequences) {
    const size_t bytes = table.kv_page_bytes(shape);
    memory.assign(static_cast<size_t>(2 * sequences) * bytes / sizeof(Line), Line{});
    auto* const first = reinterpret_cast<std::byte*>(memory.data());
    for (int64_t p = 0; p < 2 * sequences; ++p) pages.push_back(first + p * bytes);
    for (int64_t s = 0; s < sequences; ++s) {
      views.push_back({{pages[2 * s], 0, 64}, {pages[2 * s + 1], 64, kTokens - 64}});
    }
  }

  struct alignas(64) Line {
    std::byte bytes[64] = {};
  };
  KvPageShape shape{64, kKvHeads, kDim, kDim, DType::kBF16};
  std::vector<Line> memory;
  std::vector<std::byte*> pages;
  std::vector<std::vector<KvPageView>> views;  // [sequence]
};

// The ops of a layer that decodes one token of every sequence, by a table whose weights are of one
// dtype.
class DecodedLayer {
 public:
  DecodedLayer(const OpTable& table, Stream& stream, DType dtype, int64_t sequences)
      : table_(table), stream_(stream), rows_(sequences), dtype_(dtype), pages_(table, sequences) {
    std::mt19937 random(static_cast<uint32_t>(sequences));
    for (TestMatrix* const each : {&input_, &norm_, &cosine_, &sine_, &other_, &other_lse_}) {
      each->FillNormal(random);
    }
    const auto pack = [&](int64_t out, int64_t in) {
      TestMatrix source(out, in);
      source.FillNormal(random, 0.2f);
      return testing::Pack(table, source, dtype);
    };
    query_ = pack(kHidden, kHidden);
    key_ = pack(kKeys, kHidden);
    wide_ = pack(kWide, kHidden);
    down_ = pack(kHidden, kWide);
    std::vector<const PackedMatrix*> matrices;
    for (int e = 0; e < kExperts; ++e) {
      experts_.push_back(std::make_unique<PackedMatrix>(pack(kHidden, kHidden)));
      matrices.push_back(experts_.back().get());
    }
    listed_ = ListExperts(testing::BackendOf(table), stream, matrices,
                          std::vector<const float*>(kExperts, nullptr))
                  .value();
    FillPages(random);
  }

  // Everything that the ops leave, in their order; in a graph if `held`.
  std::vector<TestMatrix> Run(bool held) {
    EXPECT_TRUE(stream_.Synchronize().ok());
    pages_.memory = before_;  // without the token
    std::vector<TestMatrix> out;
    for (const int64_t cols : {kHidden, kHidden, kKeys, kKeys, kHidden, int64_t{kHeads}, kHidden,
                               kHidden, kWide, kWide, kHidden, 2 * kHidden}) {
      out.emplace_back(rows_, cols);
    }
    const auto graph = held ? stream_.BeginGraph().value() : nullptr;
    Enqueue(out);
    if (held) {
      EXPECT_TRUE(graph->Launch().ok());
    }
    EXPECT_TRUE(stream_.Synchronize().ok());
    return out;
  }

 private:
  void FillPages(std::mt19937& random) {
    TestMatrix keys(kTokens - 1, kKeys), values(kTokens - 1, kKeys);
    for (int64_t s = 0; s < rows_; ++s) {
      keys.FillNormal(random);
      values.FillNormal(random);
      std::vector<std::byte*> pages;
      std::vector<int32_t> slots;
      for (int32_t t = 0; t < kTokens - 1; ++t) {
        pages.push_back(pages_.pages[static_cast<size_t>(2 * s + t / 64)]);
        slots.push_back(t % 64);
      }
      EXPECT_TRUE(
          table_.kv_append(stream_, {pages_.shape, keys.view(), values.view(), pages, slots}).ok());
      EXPECT_TRUE(stream_.Synchronize().ok());
    }
    before_ = pages_.memory;
  }

  LinearParams Product(const PackedMatrix& weight, TestMatrix& input, TestMatrix& output) const {
    LinearParams params;
    params.input = std::as_const(input).view();
    params.weight = &weight;
    params.output = output.view();
    if (dtype_ == DType::kF8E4M3) params.activations = Activations::kFp8;
    return params;
  }

  void Norm(const TestMatrix& input, TestMatrix& output) {
    NormParams params;
    params.input = input.view();
    params.weight = norm_.row(0);
    params.norm = {1e-5f};
    params.output = output.view();
    EXPECT_TRUE(table_.norm(stream_, params).ok());
  }

  void Attend(TestMatrix& query, TestMatrix& key, TestMatrix& value, AttentionState state) {
    for (const auto& [values, heads] : {std::pair(&query, kHeads), {&key, kKvHeads}}) {
      EXPECT_TRUE(table_
                      .rope(stream_, {values->view(), heads, kDim,
                                      std::as_const(cosine_).view().row_range(0, rows_),
                                      std::as_const(sine_).view().row_range(0, rows_)})
                      .ok());
    }
    std::vector<std::byte*> pages;
    const std::vector<int32_t> slots(static_cast<size_t>(rows_), (kTokens - 1) % 64);
    for (int64_t s = 0; s < rows_; ++s)
      pages.push_back(pages_.pages[static_cast<size_t>(2 * s + 1)]);
    EXPECT_TRUE(
        table_.kv_append(stream_, {pages_.shape, key.view(), value.view(), pages, slots}).ok());
    const int32_t position = kTokens - 1;
    std::vector<AttentionItem> items(static_cast<size_t>(rows_));
    for (int64_t s = 0; s < rows_; ++s) {
      AttentionItem& item = items[static_cast<size_t>(s)];
      item.query = std::as_const(query).view().row_range(s, 1);
      item.positions = {&position, 1};
      item.pages = pages_.views[static_cast<size_t>(s)];
      item.state = {state.o + s * kHidden, state.lse + s * kHeads, 1, kHeads, kDim};
    }
    AttentionParams params;
    params.shape = pages_.shape;
    params.heads = kHeads;
    params.scale = 0.25f;
    params.items = items;
    EXPECT_TRUE(table_.attention(stream_, params).ok());
    EXPECT_TRUE(
        table_
            .merge_state(stream_, {state, {other_.row(0), other_lse_.row(0), rows_, kHeads, kDim}})
            .ok());
  }

  void Enqueue(std::vector<TestMatrix>& out) {
    TestMatrix &normed = out[0], &q = out[1], &k = out[2], &v = out[3], &o = out[4], &lse = out[5],
               &attended = out[6], &again = out[7], &gate = out[8], &up = out[9], &result = out[10];
    Norm(input_, normed);
    const LinearParams first[] = {Product(query_, normed, q), Product(key_, normed, k),
                                  Product(key_, normed, v)};
    EXPECT_TRUE(Linears(table_, stream_, first).ok());
    Attend(q, k, v, {o.row(0), lse.row(0), rows_, kHeads, kDim});
    EXPECT_TRUE(table_.linear(stream_, Product(query_, o, attended)).ok());
    Norm(attended, again);
    const LinearParams second[] = {Product(wide_, again, gate), Product(wide_, again, up)};
    EXPECT_TRUE(Linears(table_, stream_, second).ok());
    EXPECT_TRUE(
        table_.gated_mul(stream_, {gate.view(), up.view(), gate.view(), Activation::kSilu, 0, 0})
            .ok());
    EXPECT_TRUE(table_.linear(stream_, Product(down_, gate, result)).ok());
    Choose(result, out[11]);
    EXPECT_TRUE(table_.scale(stream_, {result.view(), 3}).ok());
  }

  // Two experts for each row, which are others than those that were there before.
  void Choose(TestMatrix& input, TestMatrix& output) {
    chosen_.assign(static_cast<size_t>(2 * rows_), 0);
    for (size_t i = 1; i < chosen_.size(); i += 2) chosen_[i] = 1;
    weights_.resize(chosen_.size());
    RouteParams route{.logits = std::as_const(input).view(), .experts = chosen_.data()};
    route.logits.cols = kExperts;
    route.rule = {.chosen = 2, .normalised = true};
    route.weights = weights_.data();
    EXPECT_TRUE(table_.route(stream_, route).ok());
    ExpertLinearParams params;
    params.input = std::as_const(input).view();
    params.weights = &listed_;
    params.experts = chosen_.data();
    params.chosen = 2;
    params.output = {output.row(0), 2 * rows_, kHidden, kHidden};
    if (dtype_ == DType::kF8E4M3) params.activations = Activations::kFp8;
    EXPECT_TRUE(table_.expert_linear(stream_, params).ok());
  }

  const OpTable& table_;
  Stream& stream_;
  const int64_t rows_;
  const DType dtype_;
  Pages pages_;
  std::vector<Pages::Line> before_;
  TestMatrix input_{rows_, kHidden};
  TestMatrix norm_{1, kHidden};
  TestMatrix cosine_{rows_, kDim / 2};
  TestMatrix sine_{rows_, kDim / 2};
  TestMatrix other_{rows_, kHidden};
  TestMatrix other_lse_{rows_, kHeads};
  PackedMatrix query_, key_, wide_, down_;
  std::vector<std::unique_ptr<PackedMatrix>> experts_;
  ExpertMatrices listed_;
  std::vector<int32_t> chosen_;
  std::vector<float> weights_;
};

void ExpectSame(const std::vector<TestMatrix>& expected, const std::vector<TestMatrix>& actual) {
  for (size_t i = 0; i < expected.size(); ++i) {
    for (int64_t r = 0; r < expected[i].rows(); ++r) {
      ASSERT_FALSE(std::isnan(expected[i].row(r)[0])) << "matrix " << i << " row " << r;
      ASSERT_TRUE(SameBits(expected[i].row(r), actual[i].row(r), expected[i].cols()))
          << "matrix " << i << " row " << r;
    }
  }
}

TEST_F(OverlapTest, ADecodedLayerHasTheSameBits) {
  for (const OpTable& table : {HopperOps(), TrialOf(HopperOps()).value()}) {
    for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kI4G64, DType::kI8}) {
      for (const int64_t rows : {1, 9}) {
        if (kSanitized && (rows > 1 || dtype != DType::kF8E4M3)) continue;
        SCOPED_TRACE(::testing::Message()
                     << table.name << " " << DTypeName(dtype) << " rows " << rows);
        LetKernelsOverlap(*stream_, false);
        DecodedLayer layer(table, *stream_, dtype, rows);
        const std::vector<TestMatrix> expected = layer.Run(/*held=*/false);
        LetKernelsOverlap(*stream_, true);
        ExpectSame(expected, layer.Run(/*held=*/false));
        ExpectSame(expected, layer.Run(/*held=*/true));
        ExpectSame(expected, layer.Run(/*held=*/true));  // the graph that is there
      }
    }
  }
}

}  // namespace
}  // namespace annulus::cuda
