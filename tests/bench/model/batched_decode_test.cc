#include "bench/model/batched_decode.h"

#include "bench/model/model_work.h"
#include "gtest/gtest.h"

namespace annulus::bench {
namespace {

// See model_work_test.cc.
ModelConfig OneLayer() {
  ModelConfig config;
  config.vocabulary = 32;
  config.hidden_size = 8;
  config.intermediate_size = 16;
  config.layers.resize(1);
  SetAttention(config, {.heads = 4, .kv_heads = 2, .k_dim = 4, .v_dim = 4});
  return config;
}

TEST(LeastStepSeconds, ReadsWeightsOnceAndKeysOfEveryStream) {
  const BatchedDecodeOptions options{
      .depth = 99, .streams = 3, .generate = 2, .kv_dtype = DType::kF32};
  const double weights = 4.0 * (768 + 8 * 32);
  const double keys = 2 * 8 * 4 * 101;  // keys and values of 2 heads of 4
  constexpr double kEndless = 1e300;
  EXPECT_DOUBLE_EQ(LeastStepSeconds(OneLayer(), options, DType::kF32, 10, kEndless),
                   (weights + 3 * keys) / 10);
  EXPECT_DOUBLE_EQ(LeastStepSeconds(OneLayer(), options, DType::kF32, kEndless, 10),
                   3 * DecodeFlops(OneLayer(), 100) / 10);
}

TEST(LeastStepSeconds, ReadsSharedKeysOnce) {
  const BatchedDecodeOptions options{
      .depth = 99, .shared = 90, .streams = 3, .generate = 2, .kv_dtype = DType::kF32};
  const double weights = 4.0 * (768 + 8 * 32);
  const double key = 2 * 8 * 4;
  EXPECT_DOUBLE_EQ(LeastStepSeconds(OneLayer(), options, DType::kF32, 10, 1e300),
                   (weights + 90 * key + 3 * 11 * key) / 10);
}

TEST(BatchedWork, CountsSharedTokensOnceAndEveryRun) {
  BatchedDecodeOptions options{.depth = 99, .shared = 90, .streams = 3, .generate = 2, .repeat = 5};
  const BenchProgress::Work work = BatchedWork(OneLayer(), options);
  const int64_t answers = 2 * (3 + 5 * 3);  // each alone, then five times together
  EXPECT_EQ(work.tokens, 99 + 2 * 9 + answers);
  EXPECT_DOUBLE_EQ(work.operations, 3 * PrefillFlops(OneLayer(), 99) -
                                        2 * PrefillFlops(OneLayer(), 90) +
                                        static_cast<double>(answers) * DecodeFlops(OneLayer(), 99));
  options.streams = 8;  // four of them also run alone
  EXPECT_EQ(BatchedWork(OneLayer(), options).tokens, 99 + 7 * 9 + 2 * (4 + 5 * 8));
}

}  // namespace
}  // namespace annulus::bench
