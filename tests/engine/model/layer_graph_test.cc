#include "engine/model/layer_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/model/files/safetensors.h"
#include "tests/engine/model/packing_backend.h"
#include "tests/support/golden.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

using ::testing::ElementsAre;
using Kind = Operation::Kind;

std::vector<Kind> KindsOf(const std::vector<Operation>& list) {
  std::vector<Kind> kinds;
  for (const Operation& operation : list) kinds.push_back(operation.kind);
  return kinds;
}

// Hidden 8, 4 heads and 2 kv heads of 4, intermediate 12.
ModelConfig Small() {
  ModelConfig config;
  config.hidden_size = 8;
  config.intermediate_size = 12;
  config.layers.resize(1);
  SetAttention(config, {.heads = 4, .kv_heads = 2, .k_dim = 4, .v_dim = 4});
  return config;
}

// Checks that an operation's weights have the shapes of its arrays. Returns how many weights it
// reads.
int64_t ExpectWeights(const LayerGraph& graph, const LayerWeights& layer,
                      const Operation& operation) {
  if (operation.kind == Kind::kNorm && operation.norm == LayerNorm::kValue) return 0;
  if (operation.kind == Kind::kNorm) {
    const int64_t size = layer.norms[operation.norm].size();
    EXPECT_GT(size, 0);
    EXPECT_EQ(graph.columns_of(operation.output) % size, 0);
    return size + layer.norm_biases[operation.norm].size();
  }
  int64_t count = 0;
  EXPECT_LE(operation.products.size(), Operation::kMostProducts);
  for (const Product& product : operation.products) {
    const bool experts = product.rows == LayerRows::kChoices;
    const size_t blocks = experts ? layer.experts.each.size() : 1;
    for (size_t i = 0; i < blocks; ++i) {
      const LinearWeights& weights =
          product.WeightsIn(layer, experts ? &layer.experts.each[i] : &layer.mlp);
      EXPECT_EQ(weights.weight.in_features, graph.columns_of(operation.input));
      EXPECT_EQ(weights.weight.out_features, graph.columns_of(product.output));
      count += weights.weight.in_features * weights.weight.out_features + weights.bias.size();
    }
  }
  return count;
}

// What a checkpoint has and what operations read are two lists, by names and by arrays.
TEST(LayerGraphTest, EveryWeightOfEveryFamilyIsReadOnce) {
  for (const std::string& name : testing::GoldenNames()) {
    SCOPED_TRACE(name);
    const std::string directory = testing::TestFile("golden/" + name).string();
    const ModelConfig config = LoadModelConfig(directory).value();
    const auto tensors = SafetensorsCheckpoint::Open(directory).value();
    const ModelWeights weights =
        ShapeWeights(config, *tensors, testing::PackingBackend::Ops(), std::nullopt).value();
    const std::vector<LayerGraph> graph = LayerGraphs(config);
    ASSERT_EQ(graph.size(), weights.layers.size());
    const int64_t table = int64_t{config.vocabulary} * config.hidden_size;
    int64_t read = weights.final_norm.size() + weights.final_norm_bias.size() +
                   table * (weights.separate_head ? 2 : 1);
    for (size_t i = 0; i < graph.size(); ++i) {
      const LayerWeights& layer = weights.layers[i];
      read += layer.sinks.size() + layer.choice_bias.size() + layer.expert_factors.size() +
              layer.scale.size() + layer.prediction.size() + layer.correction.size() +
              layer.corrected_scale.size();
      if (config.streams.used()) {
        // The first spreads what it norms; the others are read twice.
        read += layer.norms[LayerNorm::kLayerInput].size();
        read -= layer.norms[LayerNorm::kStreamRouter].size() +
                layer.norms[LayerNorm::kAttentionInput].size() +
                layer.stream_router.weight.in_features * config.streams.count;
      }
      ForEachOperation(graph[i], [&](const Operation& operation) {
        read += ExpectWeights(graph[i], weights.layers[i], operation);
      });
    }
    const int64_t inputs = config.layer_input_size * std::ssize(config.layers);
    read += inputs * (config.layer_input_vocabulary + config.hidden_size) + config.layer_input_size;
    const auto others = static_cast<int64_t>(weights.stream_projections.size());
    EXPECT_EQ(others, std::max(0, config.streams.count - 1));
    read += 2 * others * config.hidden_size * config.hidden_size;
    EXPECT_EQ(read, weights.parameters);
  }
}

TEST(LayerGraphTest, NormsAndRopesAreOperationsWhereTheFamilyHasThem) {
  ModelConfig config = Small();
  config.layers[0].rope = kNoRope;
  EXPECT_THAT(KindsOf(LayerGraphs(config)[0].attention),
              ElementsAre(Kind::kNorm, Kind::kProducts, Kind::kAttend, Kind::kProducts));
  config.layers[0].rope = 0;
  config.traits.norms = {{"", "", "after_attention", "after_block", "of_queries", "of_keys"}};
  const LayerGraph layer = LayerGraphs(config)[0];
  EXPECT_THAT(KindsOf(layer.attention),
              ElementsAre(Kind::kProducts, Kind::kNorm, Kind::kRotate, Kind::kNorm, Kind::kRotate,
                          Kind::kAttend, Kind::kProducts, Kind::kNorm));
  EXPECT_THAT(KindsOf(layer.block),
              ElementsAre(Kind::kProducts, Kind::kActivate, Kind::kProducts, Kind::kNorm));
  EXPECT_EQ(layer.attention.front().input, LayerArray::kResidual);
  EXPECT_EQ(layer.block.back().output, LayerArray::kResidual);
  EXPECT_TRUE(layer.block.back().accumulate);
}

// A parallel block reads what attention has normed, before attention adds to the residual.
TEST(LayerGraphTest, AParallelBlockReadsTheInputOfAttention) {
  ModelConfig config = Small();
  config.traits.norms = {{"input_layernorm"}};
  config.traits.parallel_blocks = true;
  config.activation = Activation::kGeluTanhAlone;
  const LayerGraph layer = LayerGraphs(config)[0];
  EXPECT_EQ(layer.attention.front().output, LayerArray::kNormed);
  EXPECT_EQ(layer.attention.back().products.front().output, LayerArray::kResidual);
  EXPECT_THAT(KindsOf(layer.block), ElementsAre(Kind::kProducts, Kind::kActivate, Kind::kProducts));
  EXPECT_EQ(layer.block.front().input, LayerArray::kNormed);
  // Without a gate there is one wide product, which is activated in place.
  ASSERT_EQ(layer.block.front().products.size(), 1u);
  EXPECT_EQ(layer.block[1].input, LayerArray::kGate);
  EXPECT_EQ(layer.block[1].output, LayerArray::kGate);
}

// Where whole gated blocks begin.
std::vector<size_t> GatedBlocksOf(const std::vector<Operation>& list) {
  std::vector<size_t> places;
  for (size_t i = 0; i < list.size(); ++i) {
    if (BeginsWithGatedBlock(std::span(list).subspan(i))) places.push_back(i);
  }
  return places;
}

TEST(LayerGraphTest, WholeGatedBlocksAreFound) {
  ModelConfig config = Small();  // a norm precedes the block
  EXPECT_THAT(GatedBlocksOf(LayerGraphs(config)[0].block), ElementsAre(1));
  EXPECT_THAT(GatedBlocksOf(LayerGraphs(config)[0].attention), ElementsAre());
  config.activation = Activation::kGeluTanhAlone;
  EXPECT_THAT(GatedBlocksOf(LayerGraphs(config)[0].block), ElementsAre(1));
  config.activation = Activation::kSilu;
  config.traits.norms = {{"before_attention", "before_block", "after_attention", "after_block"}};
  EXPECT_THAT(GatedBlocksOf(LayerGraphs(config)[0].block), ElementsAre(1));
  // The gate is cut off before it is activated.
  config.layers[0].cutoff = 1.5f;
  EXPECT_THAT(GatedBlocksOf(LayerGraphs(config)[0].block), ElementsAre());
}

TEST(LayerGraphTest, GatedBlocksOfExpertsAreWholeAndALayersInputIsNoUp) {
  ModelConfig config = Small();
  config.experts = {.count = 5, .routing = {.chosen = 2}, .intermediate_size = 3};
  config.experts.shared_size = 7;
  config.layers[0].experts = true;
  const LayerGraph experts = LayerGraphs(config)[0];
  EXPECT_THAT(GatedBlocksOf(experts.block), ElementsAre(0));
  EXPECT_THAT(GatedBlocksOf(experts.shared), ElementsAre(0));
  EXPECT_THAT(GatedBlocksOf(experts.routing), ElementsAre());
  config = Small();
  config.layer_input_size = 4;
  const LayerGraph layer = LayerGraphs(config)[0];
  EXPECT_THAT(KindsOf(layer.ending),
              ElementsAre(Kind::kProducts, Kind::kActivate, Kind::kProducts));
  EXPECT_THAT(GatedBlocksOf(layer.ending), ElementsAre());
}

// What makes the last layer cheap: later steps need keys and values alone.
TEST(LayerGraphTest, OnlyKeysAndValuesAreOfEveryRow) {
  const LayerGraph layer = LayerGraphs(Small())[0];
  ForEachOperation(layer, [&](const Operation& operation) {
    for (const Product& product : operation.products) {
      const bool kept = product.output == LayerArray::kKey || product.output == LayerArray::kValue;
      EXPECT_EQ(product.rows == LayerRows::kAll, kept);
    }
  });
}

TEST(LayerGraphTest, ALayerOfExpertsRoutesBeforeItsBlock) {
  ModelConfig config = Small();
  config.experts = {.count = 5, .routing = {.chosen = 2}, .intermediate_size = 3};
  config.layers.resize(2, config.layers.front());
  config.layers[0].experts = true;
  const std::vector<LayerGraph> graph = LayerGraphs(config);
  ASSERT_EQ(graph[0].routing.size(), 2u);
  EXPECT_TRUE(graph[0].routing.back().products.front().float_input);
  EXPECT_EQ(graph[0].columns_of(LayerArray::kRouterLogits), 5);
  EXPECT_EQ(graph[0].columns_of(LayerArray::kGate), 3);
  EXPECT_EQ(graph[0].block.back().products.front().output, LayerArray::kExpertOutput);
  EXPECT_TRUE(graph[1].routing.empty());
  EXPECT_EQ(graph[1].columns_of(LayerArray::kGate), 12);
}

// Adds to the residual by itself, or as the gate says.
TEST(LayerGraphTest, ASharedBlockStandsBesideTheExperts) {
  ModelConfig config = Small();
  config.experts = {.count = 5, .routing = {.chosen = 2}, .intermediate_size = 3};
  config.experts.shared_size = 7;
  config.layers.resize(2, config.layers.front());
  config.layers[0].experts = true;
  LayerGraph layer = LayerGraphs(config)[0];
  EXPECT_THAT(KindsOf(layer.shared),
              ElementsAre(Kind::kProducts, Kind::kActivate, Kind::kProducts));
  EXPECT_EQ(layer.shared.back().products.front().output, LayerArray::kResidual);
  EXPECT_TRUE(layer.shared.back().accumulate);
  EXPECT_EQ(layer.columns_of(LayerArray::kSharedUp), 7);
  EXPECT_EQ(layer.columns_of(LayerArray::kUp), 3);
  EXPECT_TRUE(LayerGraphs(config)[1].shared.empty());
  // Of a row: 8 * (queries, keys, values and output 2 * 16 + 2 * 8, router 5), two experts
  // 3 * 8 * 3, the shared block 3 * 8 * 7.
  const WeightCounts counts = WeightsPerRow(config, layer);
  EXPECT_EQ(counts.every_row + counts.wanted_row, 8 * 53 + 2 * 72 + 168);
  config.experts.shared_gate = true;
  layer = LayerGraphs(config)[0];
  EXPECT_THAT(KindsOf(layer.shared),
              ElementsAre(Kind::kProducts, Kind::kActivate, Kind::kProducts, Kind::kAddGated));
  EXPECT_EQ(layer.shared.back().output, LayerArray::kResidual);
  EXPECT_EQ(layer.routing.back().products.front().output, LayerArray::kRouterLogits);
}

// Per layer: keys and values 2 * 8 * 8 = 128 weights; queries and output 2 * 8 * 16 = 256; gate, up
// and down 3 * 8 * 12 = 288. A pair: 4 heads * (4 + 4 channels) = 32.
TEST(LayerGraphTest, APairIsAShareOfARow) {
  ModelConfig config = Small();
  EXPECT_EQ(PairsInRows(MultipliesOfLayers(config)), 0);  // the last layer attends nothing
  config.layers.resize(3, config.layers.front());
  config.layers[1].window = 3;
  const std::vector<LayerMultiplies> layers = MultipliesOfLayers(config);
  EXPECT_EQ(layers[0].row, 672);
  EXPECT_EQ(layers[0].pair, 32);
  EXPECT_EQ(layers[1].row, 672 + 3 * 32);
  EXPECT_EQ(layers[1].pair, 0);
  EXPECT_EQ(layers[2].row, 0);
  EXPECT_EQ(layers[2].pair, 0);
  EXPECT_DOUBLE_EQ(PairsInRows(layers), 32.0 / (2 * 672 + 3 * 32));
  config.layers.erase(config.layers.begin());
  EXPECT_EQ(PairsInRows(MultipliesOfLayers(config)), 0);
}

// Layers that attend another's keys leave nothing that later steps read.
TEST(LayerGraphTest, RowsOfAPromptEndAtTheLastLayerWithKeys) {
  ModelConfig config = Small();
  config.layers.resize(4, config.layers.front());
  EXPECT_EQ(LastLayerWithKeys(config), 3);
  config.layers[2].keys_of = 0;
  EXPECT_EQ(LastLayerWithKeys(config), 3);
  config.layers[3].keys_of = 1;
  EXPECT_EQ(LastLayerWithKeys(config), 1);
  const std::vector<LayerMultiplies> layers = MultipliesOfLayers(config);
  EXPECT_EQ(layers[0].row, 672);
  EXPECT_EQ(layers[1].row, 0);
  EXPECT_EQ(layers[3].row, 0);
  const LayerGraph reading = LayerGraphs(config)[2];
  for (const Operation& operation : reading.attention) {
    EXPECT_NE(operation.rows, LayerRows::kAll);
    for (const Product& product : operation.products) EXPECT_EQ(product.rows, LayerRows::kWanted);
  }
}

}  // namespace
}  // namespace annulus
