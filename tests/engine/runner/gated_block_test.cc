// Whole models whose table runs gated blocks as one op give the logits of the separate ops, bit by
// bit.
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/files/safetensors.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/support/step_driver.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::DriverResult;
using testing::StepDriver;

// Counts the calls of a table's op, by all ranks.
struct CountedBlocks {
  static absl::Status Run(Stream& stream, const GatedBlockParams& params) {
    ++calls;
    return original(stream, params);
  }
  static inline absl::Status (*original)(Stream&, const GatedBlockParams&) = nullptr;
  static inline std::atomic<int> calls{0};
};

bool HasGatedBlock(const RankModel& model) {
  for (const LayerGraph& layer : model.graph) {
    for (const auto* list : {&layer.shared, &layer.block}) {
      for (size_t i = 0; i < list->size(); ++i) {
        if (BeginsWithGatedBlock(std::span(*list).subspan(i))) return true;
      }
    }
  }
  return false;
}

class GatedBlocks : public ::testing::TestWithParam<std::string> {};

// In chunks of up to 96 rows, and row by row: experts have any number of them.
TEST_P(GatedBlocks, GiveTheBitsOfTheirOps) {
  CpuWorld world;
  const std::string directory = testing::TestFile("golden/" + GetParam()).string();
  const ModelConfig config = LoadModelConfig(directory).value();
  const auto tensors = SafetensorsCheckpoint::Open(directory).value();
  const std::vector<int32_t> prompt = testing::LoadGolden(directory).prompt;
  int tables = 0;
  for (const OpTable* table : world.registry.Available("cpu")) {
    if (table->gated_block == nullptr) continue;
    ++tables;
    OpTable together = *table;
    CountedBlocks::original = std::exchange(together.gated_block, &CountedBlocks::Run);
    together.gated_block_rows = 1;
    OpTable apart = *table;
    apart.gated_block = nullptr;
    for (const DType weights : {DType::kBF16, DType::kI8}) {
      SCOPED_TRACE(::testing::Message() << table->name << ", " << DTypeName(weights));
      RankModel model = MakeRankModel(
          config, LoadWeights(config, *tensors, *world.backend, *table, weights).value(), *table,
          16, DType::kF32);
      const auto run = [&](const OpTable& ops) {
        model.ops = &ops;
        CountedBlocks::calls = 0;
        DriverOptions options;
        options.prefill_rows = 96;
        options.all_logits = true;
        return StepDriver(world, model, options).Run({prompt}, 4)[0];
      };
      const DriverResult expected = run(apart);
      EXPECT_EQ(CountedBlocks::calls, 0);
      const DriverResult actual = run(together);
      EXPECT_EQ(CountedBlocks::calls > 0, HasGatedBlock(model));
      EXPECT_EQ(actual.logits, expected.logits);
      EXPECT_EQ(actual.tokens, expected.tokens);
    }
  }
  if (tables == 0) GTEST_SKIP() << "no table of this processor has the op";
}

INSTANTIATE_TEST_SUITE_P(All, GatedBlocks,
                         ::testing::ValuesIn(testing::ThinnedIfSanitized(testing::GoldenNames(),
                                                                         5)),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace annulus
