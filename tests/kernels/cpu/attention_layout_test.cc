// Layers of a step share what the op derives from their items (AttentionParams::layout).
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/kernels/cpu/attention_layers.h"

namespace annulus::testing {
namespace {

using AttentionLayoutTest = EveryTable;

TEST_P(AttentionLayoutTest, LayersHaveTheBitsOfCallsByThemselves) {
  for (const LayerCase& of : LayerCases()) {
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(of.name + ", threads: " + std::to_string(threads));
      AttentionLayers layers(table(), of);
      const auto stream = MakeStream(table(), threads);
      std::unique_ptr<AttentionLayout> layout;
      for (const int layer : {0, 1, 0}) {
        AttentionResult shared(of.problem), alone(of.problem);
        ASSERT_TRUE(table().attention(*stream, layers.Call(layer, alone, nullptr)).ok());
        ASSERT_TRUE(table().attention(*stream, layers.Call(layer, shared, &layout)).ok());
        EXPECT_TRUE(shared == alone) << "layer " << layer;
      }
    }
  }
}

// Other ops of a layer may need more of the stream's workspace, which then lies elsewhere.
TEST_P(AttentionLayoutTest, LayersFollowTheWorkspace) {
  const LayerCase of = LayerCases().back();
  ASSERT_FALSE(of.branches.empty());
  LayerCase larger = MakeLayerCase("larger", DType::kF32, 1500, 700, 700);
  larger.branches = {{4096, 1}, {4096, 2}};
  AttentionLayers layers(table(), of);
  AttentionLayers others(table(), larger);
  const auto stream = MakeStream(table(), 2);
  AttentionResult shared(of.problem), alone(of.problem), other(larger.problem);
  std::unique_ptr<AttentionLayout> layout;
  ASSERT_TRUE(table().attention(*stream, layers.Call(0, shared, &layout)).ok());
  ASSERT_TRUE(table().attention(*stream, others.Call(0, other, nullptr)).ok());
  ASSERT_TRUE(table().attention(*stream, layers.Call(1, shared, &layout)).ok());
  ASSERT_TRUE(table().attention(*MakeStream(table(), 2), layers.Call(1, alone, nullptr)).ok());
  EXPECT_TRUE(shared == alone);
}

ANNULUS_FOR_EVERY_ATTENTION(AttentionLayoutTest);

}  // namespace
}  // namespace annulus::testing
