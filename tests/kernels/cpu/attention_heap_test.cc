// What attention takes from the heap: only the first layer of a step does. A program of its own, as
// it counts what the heap gives out.
#include <chrono>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/simd/ops.h"
#include "tests/kernels/cpu/attention_layers.h"
#include "tests/support/counting_heap.h"

namespace annulus::testing {
namespace {

using AttentionHeapTest = EveryTable;

TEST_P(AttentionHeapTest, LayersAfterTheFirstTakeNothing) {
  if (table().name == "cpu/reference") GTEST_SKIP() << "written to be plain";
  for (const LayerCase& of : LayerCases()) {
    for (const int threads : {1, 3}) {
      AttentionLayers layers(table(), of);
      const auto stream = MakeStream(table(), threads);
      AttentionResult result(of.problem);
      std::unique_ptr<AttentionLayout> layout;
      ASSERT_TRUE(table().attention(*stream, layers.Call(0, result, &layout)).ok());
      const AttentionParams second = layers.Call(1, result, &layout);
      const int64_t before = HeapAllocations();
      const absl::Status status = table().attention(*stream, second);
      const int64_t taken = HeapAllocations() - before;
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(taken, 0) << of.name << ", threads: " << threads;
    }
  }
}

ANNULUS_FOR_EVERY_ATTENTION(AttentionHeapTest);

// Kernels that compute nothing, so that only the work around them is left.
cpu::SimdKernels IdleKernels() {
  cpu::SimdKernels isa{};
  isa.attention_begin = isa.attention_finish = [](const cpu::AttentionBlock&) {};
  for (auto& keys : isa.attention_keys) {
    keys = [](const cpu::AttentionBlock&, const cpu::AttentionKeys&) {};
  }
  isa.merge_rows = [](const cpu::MergedRows&) {};
  return isa;
}

// 24 layers of a row behind a million tokens, whose pages are addresses without memory.
class MillionTokens {
 public:
  static constexpr int kLayers = 24;

  MillionTokens() : stream_(MakeStream(1)), isa_(IdleKernels()) {
    for (int32_t first = 0; first < kTokens; first += kShape.page_tokens) {
      pages_.push_back({reinterpret_cast<const std::byte*>(uintptr_t{1} << 44) +
                            int64_t{first} * kLayers * kLayerBytes / kShape.page_tokens,
                        first, kShape.page_tokens});
    }
    item_.query = {query_.data(), 1, kHeads * kShape.k_dim, kHeads * kShape.k_dim};
    item_.positions = {&position_, 1};
    item_.pages = pages_;
    item_.state = {o_.data(), lse_.data(), 1, kHeads, kShape.v_dim};
    params_.shape = kShape;
    params_.heads = kHeads;
    params_.shards = 8;
    params_.items = {&item_, 1};
  }

  void Run(int layer, std::unique_ptr<AttentionLayout>* layout) {
    item_.page_offset = static_cast<size_t>(layer) * kLayerBytes;
    params_.layout = layout;
    ASSERT_TRUE(cpu::Attention(isa_, AsCpuStream(*stream_), params_).ok());
  }

 private:
  static constexpr KvPageShape kShape = {64, 2, 64, 64, DType::kBF16};
  static constexpr int kHeads = 14;
  static constexpr int32_t kTokens = 1'000'000;
  static constexpr int64_t kLayerBytes = 32768;

  const std::unique_ptr<Stream> stream_;
  const cpu::SimdKernels isa_;
  std::vector<KvPageView> pages_;
  const int32_t position_ = kTokens - 1;
  std::vector<float> query_ = std::vector<float>(kHeads * kShape.k_dim);
  std::vector<float> o_ = std::vector<float>(kHeads * kShape.v_dim);
  std::vector<float> lse_ = std::vector<float>(kHeads);
  AttentionItem item_;
  AttentionParams params_;
};

// The properties say what planning costs a step, beside the walk over the pages that both have.
TEST(AttentionOfAMillionTokensTest, IsPlannedOnceAStep) {
  MillionTokens tokens;
  tokens.Run(0, nullptr);  // the stream's workspace
  const auto microseconds = [&](std::unique_ptr<AttentionLayout>* layout) {
    const auto start = std::chrono::steady_clock::now();
    for (int layer = 0; layer < MillionTokens::kLayers; ++layer) tokens.Run(layer, layout);
    const auto spent = std::chrono::steady_clock::now() - start;
    return static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(spent).count());
  };
  RecordProperty("planned_in_each_layer_microseconds", microseconds(nullptr));
  std::unique_ptr<AttentionLayout> layout;
  RecordProperty("planned_once_microseconds", microseconds(&layout));
  ASSERT_TRUE(layout != nullptr);
  const int64_t before = HeapAllocations();
  microseconds(&layout);
  EXPECT_EQ(HeapAllocations() - before, 0);
}

}  // namespace
}  // namespace annulus::testing
