#include "bench/model/model_work.h"

#include "bench/model/bench_machine.h"
#include "gtest/gtest.h"

namespace annulus::bench {
namespace {

// hidden 8, intermediate 16, 4 heads and 2 kv heads of 4, vocabulary 32. Per layer: keys and values
// 2 * 8 * 8 = 128 weights; queries and output 2 * 8 * 16 = 256; gate, up, down 3 * 8 * 16 = 384.
ModelConfig Config(std::vector<LayerConfig> layers) {
  ModelConfig config;
  config.vocabulary = 32;
  config.hidden_size = 8;
  config.intermediate_size = 16;
  config.layers = std::move(layers);
  SetAttention(config, {.heads = 4, .kv_heads = 2, .k_dim = 4, .v_dim = 4});
  return config;
}

// A pair of a row and a key costs 4 heads * (4 + 4 channels) * 2 = 64.
TEST(ModelWork, APromptCountsTheCausalHalfAndOneRowOfTheLastLayer) {
  const double head = 2 * 8 * 32;
  const double first = 5 * 2 * 768 + 64 * (1 + 2 + 3 + 4 + 5);
  const double last = 5 * 2 * 128 + 1 * 2 * 640 + 64 * 5;
  EXPECT_EQ(PrefillFlops(Config({{}, {}}), 5), first + last + head);
  EXPECT_EQ(PrefillFlops(Config({{}}), 1), 2 * 768 + 64 + head);
}

TEST(ModelWork, AWindowLimitsThePairs) {
  const double head = 2 * 8 * 32;
  const double first = 5 * 2 * 768 + 64 * (1 + 2 + 3 + 3 + 3);
  const double last = 5 * 2 * 128 + 1 * 2 * 640 + 64 * 3;
  EXPECT_EQ(PrefillFlops(Config({{.window = 3}, {.window = 3}}), 5), first + last + head);
  EXPECT_EQ(PrefillFlops(Config({{.window = 9}}), 5), PrefillFlops(Config({{}}), 5));
}

TEST(ModelWork, ADensityThinsOutFullLayersOnly) {
  const ModelConfig config = Config({{}, {.window = 3}, {}});
  const double pairs = 64 * (1 + 2 + 3 + 4 + 5) + 64 * 5;  // of the full layers
  EXPECT_EQ(PrefillFlops(config, 5) - PrefillFlops(config, 5, 0.25), 0.75 * pairs);
  EXPECT_EQ(DecodeFlops(config, 7) - DecodeFlops(config, 7, 0.5), 0.5 * 2 * 64 * 8);
  EXPECT_EQ(DecodeBytes(config, 7, DType::kF32, DType::kF32) -
                DecodeBytes(config, 7, DType::kF32, DType::kF32, 0.5),
            0.5 * 2 * 8 * 64);
}

TEST(ModelWork, ADecodedRowIsAPromptOfOneAtItsDepth) {
  const ModelConfig config = Config({{}, {.window = 3}});
  EXPECT_EQ(DecodeFlops(config, 0), 2 * (2 * 768 + 64) + 2 * 8 * 32);
  EXPECT_EQ(DecodeFlops(config, 7), 2 * 2 * 768 + 64 * (8 + 3) + 2 * 8 * 32);
}

TEST(ModelWork, ARowMeetsTheExpertsThatItChose) {
  ModelConfig config = Config({{}, {}});
  config.experts.count = 10;
  config.experts.routing.chosen = 2;
  config.experts.intermediate_size = 5;
  config.layers[1].experts = true;
  // Instead of 384 weights: the router's 8 * 10, and 3 * 8 * 5 of each chosen expert.
  const double fewer = 384 - (80 + 2 * 120);
  EXPECT_EQ(DecodeFlops(Config({{}, {}}), 3) - DecodeFlops(config, 3), 2 * fewer);
}

TEST(ModelWork, ADecodedRowReadsAllWeightsOnceAndTheKeysThatItSees) {
  const ModelConfig config = Config({{}, {.window = 3}});
  const double weights = 2 * 768 + 8 * 32;
  // Keys and values of a token in a layer: 2 * 2 heads * 4 channels = 16 numbers.
  EXPECT_EQ(DecodeBytes(config, 7, DType::kBF16, DType::kF32), 2 * weights + 4 * 16 * (8 + 3));
  // int8: a byte each, and a scale of 2 bytes for the key and for the value of each head.
  EXPECT_EQ(DecodeBytes(config, 7, DType::kI8, DType::kI8), weights + (16 + 8) * (8 + 3));
  // int4: half a byte and 1/16 of a scale, but the head is int8 (8 * 32 weights).
  EXPECT_EQ(DecodeBytes(config, 7, DType::kI4G32, DType::kI8),
            2 * 768 * 0.5625 + 8 * 32 + (16 + 8) * (8 + 3));
  EXPECT_EQ(KvBytesPerToken(config, DType::kF16), 2 * 2 * 16);
}

TEST(ModelWork, Int8InputsMeetEveryIntegerWeightAsInt8) {
  ModelInfo model;
  model.weights_dtype = DType::kI4G32;
  EXPECT_EQ(ProductsOf(model), DType::kI4G32);
  model.activations = Activations::kInt8;
  EXPECT_EQ(ProductsOf(model), DType::kI8);
  model.weights_dtype = DType::kF8E4M3;
  model.activations = Activations::kFp8;
  EXPECT_EQ(ProductsOf(model), DType::kF8E4M3);
}

}  // namespace
}  // namespace annulus::bench
